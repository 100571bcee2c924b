//! Ids of users and groups in the values of extended attributes: those that an ACL names, and the
//! root user of file capabilities.

/// An id in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrId {
    /// The user of an entry of an ACL.
    User(u32),
    /// The group of an entry of an ACL.
    Group(u32),
    /// Capabilities count where this user is root.
    Root(u32),
}

/// Version 2 of an ACL in the form that system calls use and that is stored: a header, then entries
/// of a tag, permissions and an id.
const ACL_HEADER: [u8; 4] = 2_u32.to_le_bytes();
const ACL_ENTRY_BYTES: usize = 8;
const ACL_ID_AT: usize = 4;
const ACL_USER: u16 = 2;
const ACL_GROUP: u16 = 8;

/// Versions of capabilities, in the last byte of their first number. The root user of version 2 is
/// 0; version 3 names it at the end.
const CAPABILITY_VERSION_AT: usize = 3;
const CAPABILITY_2: u8 = 2;
const CAPABILITY_2_BYTES: usize = 20;
const CAPABILITY_3: u8 = 3;
const CAPABILITY_3_BYTES: usize = 24;

/// The id of no user.
const NO_ID: u32 = u32::MAX;

/// The `value` of the extended attribute `name` with other ids, those that `other` returns. If that
/// is none, an ACL loses the entry, and capabilities count nowhere. A value without ids stays as it
/// is.
///
/// # Errors
/// The first of `other`.
pub fn replace<E>(
    name: &[u8],
    value: &[u8],
    other: impl Fn(XattrId) -> Result<Option<u32>, E>,
) -> Result<Vec<u8>, E> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => replace_in_acl(value, other),
        b"security.capability" => replace_root(value, other),
        _ => Ok(value.to_vec()),
    }
}

fn replace_in_acl<E>(
    value: &[u8],
    other: impl Fn(XattrId) -> Result<Option<u32>, E>,
) -> Result<Vec<u8>, E> {
    let Some(entries) = value.strip_prefix(&ACL_HEADER) else { return Ok(value.to_vec()) };
    let (entries, rest) = entries.as_chunks::<ACL_ENTRY_BYTES>();
    let mut replaced = ACL_HEADER.to_vec();
    for entry in entries {
        let (what, id) = entry.split_at(ACL_ID_AT);
        let id = number_at(id, 0);
        let id = match u16::from_le_bytes([entry[0], entry[1]]) {
            ACL_USER => other(XattrId::User(id))?,
            ACL_GROUP => other(XattrId::Group(id))?,
            _ => Some(id),
        };
        if let Some(id) = id {
            replaced.extend_from_slice(what);
            replaced.extend_from_slice(&id.to_le_bytes());
        }
    }
    replaced.extend_from_slice(rest);
    Ok(replaced)
}

fn replace_root<E>(
    value: &[u8],
    other: impl Fn(XattrId) -> Result<Option<u32>, E>,
) -> Result<Vec<u8>, E> {
    let mut replaced = value.to_vec();
    let root = match (value.get(CAPABILITY_VERSION_AT), value.len()) {
        (Some(&CAPABILITY_2), CAPABILITY_2_BYTES) => 0,
        (Some(&CAPABILITY_3), CAPABILITY_3_BYTES) => number_at(value, CAPABILITY_2_BYTES),
        _ => return Ok(replaced),
    };
    let root = other(XattrId::Root(root))?.unwrap_or(NO_ID);
    replaced.truncate(CAPABILITY_2_BYTES);
    replaced[CAPABILITY_VERSION_AT] = CAPABILITY_2;
    if root != 0 {
        replaced[CAPABILITY_VERSION_AT] = CAPABILITY_3;
        replaced.extend_from_slice(&root.to_le_bytes());
    }
    Ok(replaced)
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: &[u8] = b"system.posix_acl_access";
    const CAPABILITY: &[u8] = b"security.capability";

    fn acl(user: u32, group: u32) -> Vec<u8> {
        let entry = |tag: u16, id: u32| {
            [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let entries = [entry(1, !0), entry(2, user), entry(8, group), entry(16, !0)];
        [&[2, 0, 0, 0][..], &entries.concat()].concat()
    }

    /// Capabilities of version 3, or of version 2 without a root user.
    fn capability(root: Option<u32>) -> Vec<u8> {
        let version = if root.is_some() { 3 } else { 2 };
        let root = root.map(u32::to_le_bytes);
        [&[1, 0, 0, version][..], &[7; 16], root.as_ref().map_or(&[], |root| &root[..])].concat()
    }

    fn shifted(id: XattrId) -> Result<Option<u32>, u32> {
        match id {
            XattrId::User(9999) => Err(9999),
            XattrId::User(uid) => Ok(uid.checked_sub(100)),
            XattrId::Group(gid) => Ok(gid.checked_sub(200)),
            XattrId::Root(uid) => Ok(uid.checked_sub(300)),
        }
    }

    #[test]
    fn acls_name_users_and_groups() {
        assert_eq!(replace(ACCESS, &acl(101, 202), shifted), Ok(acl(1, 2)));
        let without_user = [&acl(1, 2)[..12], &acl(1, 2)[20..]].concat();
        assert_eq!(replace(ACCESS, &acl(1, 202), shifted), Ok(without_user));
        assert_eq!(replace(ACCESS, &acl(9999, 202), shifted), Err(9999));
        assert_eq!(replace(b"user.x", &acl(101, 202), shifted), Ok(acl(101, 202)));
        let (whole, odd) = (acl(101, 202), [9; 12]);
        assert_eq!(replace(ACCESS, &odd, shifted), Ok(odd.to_vec()), "no known version");
        for len in 0..whole.len() {
            assert!(replace(ACCESS, &whole[..len], shifted).is_ok_and(|it| it.len() == len));
        }
    }

    #[test]
    fn capabilities_have_a_root_user() {
        let (second, third) = (capability(None), capability(Some(305)));
        let to = |root: u32| move |_: XattrId| Ok::<_, ()>(Some(root));
        assert_eq!(replace(CAPABILITY, &second, to(0)), Ok(second.clone()));
        assert_eq!(replace(CAPABILITY, &second, to(9)), Ok(capability(Some(9))));
        assert_eq!(replace(CAPABILITY, &second, shifted), Ok(capability(Some(NO_ID))));
        assert_eq!(replace(CAPABILITY, &third, shifted), Ok(capability(Some(5))));
        assert_eq!(replace(CAPABILITY, &capability(Some(300)), shifted), Ok(second));
        for len in 0..third.len() {
            assert_eq!(replace(CAPABILITY, &third[..len], to(7)), Ok(third[..len].to_vec()));
        }
    }
}
