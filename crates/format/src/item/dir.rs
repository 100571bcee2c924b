//! Directory entries and extended attributes, which share a form.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, read_prefix, take};
use crate::key::DiskKey;
use crate::packed::{Packed, PackedItems};

/// Longest name of a file in bytes.
pub const NAME_MAX: usize = 255;
/// Longest name of an extended attribute in bytes.
pub const XATTR_NAME_MAX: usize = 255;

/// The type of a directory entry (`BTRFS_FT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not known.
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory, or a subvolume's root.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
    /// Not a file: an extended attribute.
    Xattr = 8,
}

impl FileType {
    /// The type of this number, without the bit that says that the name is encrypted.
    pub fn from_disk(number: u8) -> Option<Self> {
        Some(match number & 0x7f {
            0 => Self::Unknown,
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            8 => Self::Xattr,
            _ => return None,
        })
    }

    /// The type that the file type bits of a mode stand for.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o120_000 => Self::Symlink,
            _ => return None,
        })
    }
}

/// The part of a directory entry before its name (`struct btrfs_dir_item`, 30 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DirItemHeader {
    /// Key of the inode item, or of a subvolume's root item; zeros for an extended attribute.
    pub location: DiskKey,
    /// The transaction that made the entry.
    pub transid: U64,
    /// Bytes of value after the name; 0 except for extended attributes.
    pub data_len: U16,
    /// Bytes of name.
    pub name_len: U16,
    /// [`FileType`].
    pub file_type: u8,
}

const _: () = assert!(size_of::<DirItemHeader>() == 30);

/// An entry of a `DIR_ITEM`, `DIR_INDEX` or `XATTR_ITEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The part before the name.
    pub header: &'a DirItemHeader,
    /// The name: any bytes but zero and (for files) a slash.
    pub name: &'a [u8],
    /// The value of an extended attribute.
    pub data: &'a [u8],
}

impl DirEntry<'_> {
    /// Bytes that an entry takes.
    pub const fn len_bytes(name_len: usize, data_len: usize) -> usize {
        size_of::<DirItemHeader>() + name_len + data_len
    }

    /// Appends the entry. Its header has the lengths of name and value.
    pub fn write(&self, out: &mut Vec<u8>) {
        let said = (self.header.name_len.get(), self.header.data_len.get());
        debug_assert_eq!(said, (self.name.len() as u16, self.data.len() as u16));
        out.extend(self.header.as_bytes());
        out.extend(self.name);
        out.extend(self.data);
    }

    /// The type; [`FileType::Unknown`] for undefined numbers.
    pub fn file_type(&self) -> FileType {
        FileType::from_disk(self.header.file_type).unwrap_or(FileType::Unknown)
    }
}

/// Iterates over the entries of an item, whose names have one hash. Ends after an error.
pub type DirEntries<'a> = PackedItems<'a, DirEntry<'a>>;

impl<'a> Packed<'a> for DirEntry<'a> {
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError> {
        let (header, rest) = read_prefix::<DirItemHeader>(bytes)?;
        let (name, rest) = take(rest, usize::from(header.name_len.get()), "name")?;
        let (data, rest) = take(rest, usize::from(header.data_len.get()), "xattr value")?;
        Ok((Self { header, name, data }, rest))
    }
}
