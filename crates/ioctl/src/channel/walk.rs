//! Walks: what a client asks for, and the records of the answer.

use std::io;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::invalid;

const BELOW: u64 = 1;
const TARGETS: u64 = 2;
const XATTRS: u64 = 4;
const DATA: u64 = 8;
const WRITTEN: u64 = 16;

/// A request to walk through the directory of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkRequest {
    /// The name in it at which the walk begins; empty for the directory itself.
    pub name: Vec<u8>,
    /// What the answer contains.
    pub wants: Wants,
}

/// What the answer to a walk contains besides names and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a request of its own")]
pub struct Wants {
    /// Everything below the first directory too, not its entries only.
    pub below: bool,
    /// The targets of symbolic links.
    pub targets: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The data of files.
    pub data: bool,
    /// Data that the kernel has not written back yet, before the walk begins, and failures for files
    /// that the caller may not read. So it is with [`data`](Self::data), too.
    pub written: bool,
}

impl WalkRequest {
    pub(super) fn body(&self) -> Vec<u8> {
        let Wants { below, targets, xattrs, data, written } = self.wants;
        let flags = [
            (below, BELOW),
            (targets, TARGETS),
            (xattrs, XATTRS),
            (data, DATA),
            (written, WRITTEN),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = set.fold(0, |all, (_, flag)| all | flag);
        [flags.as_bytes(), &self.name].concat()
    }

    pub(super) fn parse(body: &[u8]) -> io::Result<Self> {
        let too_short = |_| invalid("a request to walk that is too short");
        let (flags, name) = u64::read_from_prefix(body).map_err(too_short)?;
        if flags & !(BELOW | TARGETS | XATTRS | DATA | WRITTEN) != 0 {
            return Err(invalid("a request with unknown flags"));
        }
        let has = |flag| flags & flag != 0;
        Ok(Self {
            name: name.to_vec(),
            wants: Wants {
                below: has(BELOW),
                targets: has(TARGETS),
                xattrs: has(XATTRS),
                data: has(DATA),
                written: has(WRITTEN),
            },
        })
    }
}

/// The attributes of an inode.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Attributes {
    /// Id of its subvolume.
    pub subvolume: u64,
    /// Its number there.
    pub inode: u64,
    /// Bytes in it.
    pub size_bytes: u64,
    /// Bytes of the space that it has, and of the space that its dirty data will need.
    pub taken_bytes: u64,
    /// Seconds since 1970 of the last access, change of content, change of the inode, and of its
    /// creation.
    pub seconds: [i64; 4],
    /// Their nanoseconds.
    pub nanoseconds: [u32; 4],
    /// Its flags on disk.
    pub flags: u64,
    /// The transaction that made it.
    pub generation: u64,
    /// The transaction that last changed it.
    pub change_generation: u64,
    /// Counts changes.
    pub sequence: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub device: [u32; 2],
}

/// A record of the answer.
///
/// A directory comes before its entries, and all its entries before those of directories in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'r> {
    /// The walk enters a directory. The path begins with the name of the request.
    Directory {
        /// Its path.
        path: &'r [u8],
        /// Its attributes.
        attributes: Attributes,
    },
    /// An entry of the last directory.
    Entry {
        /// Its name.
        name: &'r [u8],
        /// The target of a symbolic link; empty unless the client wants it.
        target: &'r [u8],
        /// The attributes of its inode.
        attributes: Attributes,
    },
    /// An extended attribute of the last directory or entry.
    Xattr {
        /// Its name.
        name: &'r [u8],
        /// Its value.
        value: &'r [u8],
    },
    /// Ranges of data in the last entry, a file with holes: start and end of each in bytes. Further
    /// ranges may follow.
    Ranges(Vec<[u64; 2]>),
    /// Data of the last entry. It comes in order, and nothing of its ranges is left out.
    Data {
        /// Where it lies in the file, in bytes.
        offset: u64,
        /// The data.
        data: &'r [u8],
    },
    /// Something could not be read. The walk goes on.
    Failed {
        /// The path of the inode.
        path: &'r [u8],
        /// The reason.
        reason: &'r [u8],
    },
}

/// What comes before the bytes of a record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    kind: u32,
    /// Bytes of both parts.
    len: [u32; 2],
    /// Fills the header up to a multiple of 8 bytes.
    unused: u32,
    number: u64,
}

const DIRECTORY: u32 = 1;
const ENTRY: u32 = 2;
const XATTR: u32 = 3;
const RANGES: u32 = 4;
const DATA_RECORD: u32 = 5;
const FAILED: u32 = 6;

impl<'r> Record<'r> {
    /// Appends the record to `out`.
    pub fn append(&self, out: &mut Vec<u8>) {
        let mut put = |kind, number, attributes: Option<&Attributes>, parts: [&[u8]; 2]| {
            let len = parts.map(|part| part.len() as u32);
            out.extend_from_slice(Header { kind, len, unused: 0, number }.as_bytes());
            out.extend_from_slice(attributes.map_or(&[], IntoBytes::as_bytes));
            for part in parts {
                out.extend_from_slice(part);
            }
        };
        match self {
            Self::Directory { path, attributes } => {
                put(DIRECTORY, 0, Some(attributes), [path, &[]]);
            }
            Self::Entry { name, target, attributes } => {
                put(ENTRY, 0, Some(attributes), [name, target]);
            }
            Self::Xattr { name, value } => put(XATTR, 0, None, [name, value]),
            Self::Ranges(ranges) => put(RANGES, 0, None, [ranges.as_bytes(), &[]]),
            Self::Data { offset, data } => put(DATA_RECORD, *offset, None, [data, &[]]),
            Self::Failed { path, reason } => put(FAILED, 0, None, [path, reason]),
        }
    }

    /// The record at the start of `bytes`, and the rest.
    pub fn split(bytes: &'r [u8]) -> io::Result<(Self, &'r [u8])> {
        let cut_short = || invalid("a record that is cut short");
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| cut_short())?;
        let has_attributes = matches!(header.kind, DIRECTORY | ENTRY);
        let (attributes, rest) = if has_attributes {
            Attributes::read_from_prefix(rest).map_err(|_| cut_short())?
        } else {
            (Attributes::default(), rest)
        };
        let [first, second] = header.len.map(|len| len as usize);
        let (first, rest) = rest.split_at_checked(first).ok_or_else(cut_short)?;
        let (second, rest) = rest.split_at_checked(second).ok_or_else(cut_short)?;
        let record = match header.kind {
            DIRECTORY => Self::Directory { path: first, attributes },
            ENTRY => Self::Entry { name: first, target: second, attributes },
            XATTR => Self::Xattr { name: first, value: second },
            RANGES => {
                let (ranges, rest) = first.as_chunks();
                if !rest.is_empty() {
                    return Err(cut_short());
                }
                let range = |bytes: &[u8; 16]| zerocopy::transmute!(*bytes);
                Self::Ranges(ranges.iter().map(range).collect())
            }
            DATA_RECORD => Self::Data { offset: header.number, data: first },
            FAILED => Self::Failed { path: first, reason: second },
            _ => return Err(invalid("a record of an unknown kind")),
        };
        Ok((record, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        for wants in [
            Wants::default(),
            Wants { below: true, ..Wants::default() },
            Wants { targets: true, xattrs: true, ..Wants::default() },
            Wants { data: true, ..Wants::default() },
            Wants { written: true, ..Wants::default() },
        ] {
            for name in ["", "bread"] {
                let request = WalkRequest { name: name.into(), wants };
                assert_eq!(WalkRequest::parse(&request.body()).unwrap(), request);
            }
        }
        assert!(WalkRequest::parse(&[0; 7]).is_err());
        assert!(WalkRequest::parse(32_u64.as_bytes()).is_err());
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let attributes = Attributes { inode: 257, mode: 0o100_644, ..Attributes::default() };
        let records = [
            Record::Directory { path: b"a/b", attributes },
            Record::Entry { name: b"bread", target: b"crumbs", attributes },
            Record::Xattr { name: b"user.a", value: b"" },
            Record::Ranges(vec![[0, 4096], [8192, 8200]]),
            Record::Data { offset: 8192, data: b"12345678" },
            Record::Failed { path: b"a/c", reason: b"no" },
        ];
        let mut bytes = Vec::new();
        for record in &records {
            record.append(&mut bytes);
        }
        let mut rest = &bytes[..];
        for expected in &records {
            let (record, behind) = Record::split(rest).unwrap();
            assert_eq!(record, *expected);
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn records_that_are_cut_short_are_refused() {
        let mut bytes = Vec::new();
        Record::Ranges(vec![[0, 1]]).append(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Record::split(&bytes[..len]).is_err());
        }
        bytes[0] = 7;
        assert!(Record::split(&bytes).is_err());
        bytes[0] = RANGES as u8;
        // Not a whole number of ranges.
        bytes[4] = 15;
        assert!(Record::split(&bytes).is_err());
    }
}
