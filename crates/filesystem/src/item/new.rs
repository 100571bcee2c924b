//! The properties of a new inode.

use larder_format::item::{FileExtentHeader, FileExtentKind, InodeItem};
use larder_format::{ItemType, Key, item};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::item::metadata::FileType;

/// Linux counts device numbers as 12 bits of major and 20 bits of minor.
const MINOR_BITS: u32 = 20;
const MOST_MAJOR: u32 = 0xFFF;
const MOST_MINOR: u32 = (1 << MINOR_BITS) - 1;
/// Type and permissions, all bits that a mode can have.
const MODE_BITS: u32 = 0o177_777;

/// The properties of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a directory with setgid passes its own on instead. The caller decides whether the
    /// creator may set the setgid bit.
    pub gid: u32,
    /// Permissions that are removed from those in `mode`, unless the directory has a default ACL.
    pub umask: u32,
    /// Major and minor number of a device node, zeros for anything else.
    pub device: (u32, u32),
}

/// An item to be inserted.
pub(crate) type NewItem = (Key, Vec<u8>);

impl NewInode {
    /// Its type. Refuses a mode or device number that an inode item cannot have.
    pub(crate) fn file_type(&self) -> Result<FileType> {
        if self.mode & !MODE_BITS != 0 {
            return Err(Error::Invalid("the mode has bits without a meaning"));
        }
        if self.device.0 > MOST_MAJOR || self.device.1 > MOST_MINOR {
            return Err(Error::Invalid("no device has this number"));
        }
        FileType::from_mode(self.mode).ok_or(Error::Invalid("the mode has no type"))
    }

    /// The device number in the form of inode items.
    pub(crate) fn rdev(&self) -> u64 {
        u64::from(self.device.0) << MINOR_BITS | u64::from(self.device.1)
    }
}

/// The type in a directory entry.
pub(crate) fn entry_type(file_type: FileType) -> item::FileType {
    match file_type {
        FileType::Regular => item::FileType::Regular,
        FileType::Directory => item::FileType::Directory,
        FileType::Symlink => item::FileType::Symlink,
        FileType::BlockDevice => item::FileType::BlockDevice,
        FileType::CharDevice => item::FileType::CharDevice,
        FileType::Fifo => item::FileType::Fifo,
        FileType::Socket => item::FileType::Socket,
    }
}

/// The item of a new inode that inherits nothing from its directory.
pub(crate) fn new_item(new: &NewInode, generation: u64, target: Option<&[u8]>) -> InodeItem {
    let mut item = InodeItem::new_zeroed();
    item.generation = generation.into();
    item.transid = generation.into();
    item.nlink = 1.into();
    item.mode = new.mode.into();
    item.uid = new.uid.into();
    item.gid = new.gid.into();
    item.rdev = new.rdev().into();
    let len_bytes = target.map_or(0, <[u8]>::len) as u64;
    (item.size, item.nbytes) = (len_bytes.into(), len_bytes.into());
    let now = item::Timespec::from(larder_device::now());
    (item.atime, item.ctime, item.mtime, item.otime) = (now, now, now, now);
    item
}

/// The only extent of an inode, whose data is inline.
pub(crate) fn inline_item(number: u64, generation: u64, data: &[u8]) -> NewItem {
    let header = FileExtentHeader {
        generation: generation.into(),
        ram_bytes: (data.len() as u64).into(),
        compression: 0,
        encryption: 0,
        other_encoding: 0.into(),
        kind: FileExtentKind::Inline as u8,
    };
    (Key::new(number, ItemType::EXTENT_DATA, 0), [header.as_bytes(), data].concat())
}
