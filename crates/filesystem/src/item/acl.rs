//! POSIX ACLs: their form, and how they and a mode follow each other.
//!
//! They are stored in the form of system calls (`struct posix_acl_xattr_header`): a version, then
//! entries of tag, permissions and id, all little-endian.

use crate::error::{Error, Result};

/// Names of the extended attributes that hold them.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries that name no user.
const NOBODY: u32 = u32::MAX;
/// Read, write and execute.
const ALL: u16 = 7;

/// To whom an entry applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Owner,
    User,
    OwningGroup,
    Group,
    Mask,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// [`ALL`] at most.
    permissions: u16,
    id: u32,
}

/// A valid list: its entries are in order, and the required ones are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads the value of an extended attribute; `None` if it has no entries, which removes an ACL.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let form = || Error::Invalid("the form of the ACL");
        let (version, entries) = value.split_first_chunk::<HEADER_BYTES>().ok_or_else(form)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::UnknownAclVersion);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(form());
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().copied().map(Entry::parse).collect::<Option<Vec<_>>>();
        let acl = Self { entries: entries.ok_or_else(form)? };
        if acl.is_in_order() { Ok(Some(acl)) } else { Err(form()) }
    }

    /// The value of the extended attribute.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.tag.number().to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// One entry each for owner, owning group and others, those for users and groups in between,
    /// and a mask if there are any of these.
    fn is_in_order(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let needs_mask = count(Tag::User) + count(Tag::Group) > 0;
        self.entries.is_sorted_by_key(|entry| entry.tag.number())
            && [Tag::Owner, Tag::OwningGroup, Tag::Other].iter().all(|tag| count(*tag) == 1)
            && (usize::from(needs_mask)..=1).contains(&count(Tag::Mask))
    }

    /// Whether a mode says the same.
    pub(crate) fn is_mode(&self) -> bool {
        !self.entries.iter().any(|entry| matches!(entry.tag, Tag::User | Tag::Group | Tag::Mask))
    }

    /// The permissions of owner, group and others in a mode: for the group those of the mask, if
    /// there is one.
    pub(crate) fn permissions(&self) -> u32 {
        self.shown().map(|(entry, shift)| u32::from(entry.permissions) << shift).sum()
    }

    /// Applies `permissions`, as `chmod` does.
    pub(crate) fn set_permissions(&mut self, permissions: u32) {
        self.each_shown(|entry, mode| *entry = mode, permissions);
    }

    /// Removes permissions that are not in `permissions`, as creating a file does.
    pub(crate) fn restrict(&mut self, permissions: u32) {
        self.each_shown(|entry, mode| *entry &= mode, permissions);
    }

    fn each_shown(&mut self, change: impl Fn(&mut u16, u16), permissions: u32) {
        let has_mask = self.has_mask();
        for entry in &mut self.entries {
            if let Some(shift) = entry.tag.shift_in_mode(has_mask) {
                change(&mut entry.permissions, (permissions >> shift) as u16 & ALL);
            }
        }
    }

    /// The entries that a mode shows, and its bits for each.
    fn shown(&self) -> impl Iterator<Item = (&Entry, u32)> {
        let has_mask = self.has_mask();
        self.entries.iter().filter_map(move |entry| {
            let shift = entry.tag.shift_in_mode(has_mask)?;
            Some((entry, shift))
        })
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.tag == Tag::Mask)
    }
}

impl Entry {
    fn parse(bytes: [u8; ENTRY_BYTES]) -> Option<Self> {
        let [tag0, tag1, permissions0, permissions1, id @ ..] = bytes;
        let tag = Tag::of_number(u16::from_le_bytes([tag0, tag1]))?;
        let permissions = u16::from_le_bytes([permissions0, permissions1]);
        let names_somebody = matches!(tag, Tag::User | Tag::Group);
        let id = if names_somebody { u32::from_le_bytes(id) } else { NOBODY };
        let is_valid = permissions <= ALL && (id != NOBODY) == names_somebody;
        is_valid.then_some(Self { tag, permissions, id })
    }
}

impl Tag {
    const NUMBERS: [(Self, u16); 6] = [
        (Self::Owner, 0x01),
        (Self::User, 0x02),
        (Self::OwningGroup, 0x04),
        (Self::Group, 0x08),
        (Self::Mask, 0x10),
        (Self::Other, 0x20),
    ];

    fn of_number(number: u16) -> Option<Self> {
        Self::NUMBERS.iter().find(|(_, known)| *known == number).map(|(tag, _)| *tag)
    }

    fn number(self) -> u16 {
        Self::NUMBERS.iter().find(|(tag, _)| *tag == self).map_or(0, |(_, number)| *number)
    }

    /// The bits of a mode that show such an entry, if any do: a mask hides the owning group.
    fn shift_in_mode(self, has_mask: bool) -> Option<u32> {
        match self {
            Self::Owner => Some(6),
            Self::OwningGroup if has_mask => None,
            Self::OwningGroup | Self::Mask => Some(3),
            Self::Other => Some(0),
            Self::User | Self::Group => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [(u16, u16, u32); 3] = [(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 4, NOBODY)];
    const WITH_USER: [(u16, u16, u32); 5] =
        [(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, 6, NOBODY), (0x20, 4, NOBODY)];

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn parse(entries: &[(u16, u16, u32)]) -> Option<Acl> {
        Acl::parse(&value(entries)).ok().flatten()
    }

    #[test]
    fn a_mode_and_an_acl_say_the_same() {
        let plain = parse(&PLAIN).unwrap();
        assert!(plain.is_mode());
        assert_eq!(plain.permissions(), 0o754);
        let mut acl = parse(&WITH_USER).unwrap();
        assert!(!acl.is_mode());
        assert_eq!(acl.permissions(), 0o764);
        assert_eq!(acl.to_bytes(), value(&WITH_USER));
        acl.restrict(0o640);
        assert_eq!(acl.permissions(), 0o640);
        acl.set_permissions(0o4711);
        assert_eq!(acl.permissions(), 0o711);
        let shown = [(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, 1, NOBODY)];
        assert_eq!(acl.to_bytes(), value(&[&shown[..], &[(0x20, 1, NOBODY)]].concat()));
    }

    #[test]
    fn trivial_and_invalid_acls() {
        assert_eq!(Acl::parse(b"").unwrap(), None);
        assert_eq!(Acl::parse(&value(&[])).unwrap(), None);
        assert!(Acl::parse(&[2, 0, 0]).is_err());
        assert!(Acl::parse(&[3, 0, 0, 0]).is_err());
        assert!(Acl::parse(&value(&PLAIN)[..27]).is_err());
        let [owner, user, group, mask, other] = WITH_USER;
        let too_much = (4, 8, NOBODY);
        for entries in [
            &[owner, group, user, mask, other][..],
            &[owner, user, group, other],
            &[user, group, mask, other],
            &[owner, user, too_much, mask, other],
            &[owner, (3, 7, NOBODY), group, mask, other],
            &[owner, (2, 6, NOBODY), group, mask, other],
            &[owner, user, group, mask, other, other],
        ] {
            assert_eq!(parse(entries), None, "{entries:?}");
        }
    }
}
