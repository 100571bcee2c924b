//! ACLs as text, in the records of tar archives: `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
//!
//! An extended attribute holds an ACL as a version and entries of a tag, permissions and an id
//! (`struct posix_acl_xattr_header` and `struct posix_acl_xattr_entry`), in the order of their tags
//! and ids.

use anyhow::{Context, bail, ensure};

use crate::names::{NO_ID, Names};

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

/// The tags, their names, and whose names their entries have.
const TAGS: [(u16, &str, Option<Names>); 6] = [
    (0x01, "user", None),
    (0x02, "user", Some(Names::Users)),
    (0x04, "group", None),
    (0x08, "group", Some(Names::Groups)),
    (0x10, "mask", None),
    (0x20, "other", None),
];
const PERMISSIONS: [(u16, char); 3] = [(4, 'r'), (2, 'w'), (1, 'x')];

/// The ACL in the value of an extended attribute, with numbers for users and groups. `None` if it
/// is not in the usual form.
pub fn to_text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let shown = |[t0, t1, p0, p1, id @ ..]: &[u8; ENTRY_BYTES]| {
        let (tag, bits) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]));
        let (_, name, names) = TAGS.iter().find(|(number, _, _)| *number == tag)?;
        let id = names.map(|_| u32::from_le_bytes(*id).to_string()).unwrap_or_default();
        let letter = |(bit, letter): &(u16, char)| if bits & bit != 0 { *letter } else { '-' };
        let permissions: String = PERMISSIONS.iter().map(letter).collect();
        Some(format!("{name}:{id}:{permissions}"))
    };
    let entries = entries.iter().map(shown).collect::<Option<Vec<_>>>()?;
    rest.is_empty().then(|| entries.join(","))
}

/// The value of an extended attribute with the ACL in `text`: entries with commas or line ends
/// between them. A user or group is a number, or a name that this system knows; after the
/// permissions the number may follow, which counts then.
pub fn parse(text: &str) -> anyhow::Result<Vec<u8>> {
    let entries = text.split([',', '\n']).map(|entry| entry.split('#').next().unwrap_or("").trim());
    let mut parsed = entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| parse_entry(entry).with_context(|| format!("the ACL entry '{entry}'")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    parsed.sort_unstable_by_key(|(tag, _, id)| (*tag, *id));
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in parsed {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(value)
}

fn parse_entry(entry: &str) -> anyhow::Result<(u16, u16, u32)> {
    let mut fields = entry.split(':').map(str::trim);
    let (Some(kind), Some(name), Some(letters)) = (fields.next(), fields.next(), fields.next())
    else {
        bail!("it has too few fields");
    };
    // They may be shortened to a letter.
    let is_it = |known: &str| known == kind || known.get(..1) == Some(kind);
    let found =
        TAGS.iter().find(|(_, known, names)| is_it(known) && names.is_some() != name.is_empty());
    let (tag, _, names) = found.context("its type is unknown")?;
    let mut permissions = 0;
    for letter in letters.chars().filter(|letter| *letter != '-') {
        let known = PERMISSIONS.iter().find(|(_, known)| *known == letter);
        permissions |= known.context("its permissions are unknown")?.0;
    }
    let Some(names) = names else { return Ok((*tag, permissions, NO_ID)) };
    let number = fields.next().and_then(|number| number.parse().ok());
    let id = match number {
        Some(number) => number,
        None => names.read(name, |_| None).map_err(anyhow::Error::msg)?,
    };
    ensure!(id != NO_ID, "it has no valid id");
    Ok((*tag, permissions, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_are_read_as_they_were_written() {
        let text = "user::rw-,user:7:r--,user:1000:rwx,group::r-x,group:5:---,mask::rwx,other::--x";
        let value = parse(text).unwrap();
        assert_eq!(value.len(), 4 + 7 * ENTRY_BYTES);
        assert_eq!(to_text(&value).unwrap(), text);
    }

    #[test]
    fn other_forms_are_read_too() {
        let wanted = parse("user::rw-,user:0:r--,group::r--,mask::r--,other::---").unwrap();
        for text in [
            "u::rw,u:root:r,g::r,m::r,o::-",
            "user:root:r--:0\nuser::rw-\nother::---\ngroup::r--\t#effective:r--\nmask::r--\n",
            "user::rw-,user:nobody-knows:r--:0,group::r--,mask::r--,other::---",
        ] {
            assert_eq!(parse(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        for text in ["user", "user:", "user::rwz", "user:no-such-user-here:r", "all::r", "mask:1:r"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for value in
            [&b""[..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(to_text(value).is_none(), "{value:?}");
        }
    }
}
