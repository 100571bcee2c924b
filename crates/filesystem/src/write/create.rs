//! Making inodes.

use larder_format::item::{
    DirEntry, DirItemHeader, FileExtentHeader, FileExtentKind, InodeFlags, InodeItem, InodeRef,
};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, item, name_hash};
use larder_transaction::Handle;
use larder_transaction::space::Priority;
use zerocopy::{FromZeros, IntoBytes};

use super::names::{NewEntry, check_name};
use super::node::{Locked, NodeState};
use super::{apply, now};
use crate::error::{Error, Result};
use crate::inode::{FileType, Inode};

/// Items that a new inode and its name take: inode and reference, attributes, extent, entry and index,
/// and the directory's inode.
const ITEMS: u64 = 6;
/// Linux counts device numbers as 12 bits of major and 20 bits of minor.
const MINOR_BITS: u32 = 20;
/// The longest target of a symbolic link (`PATH_MAX` without its end).
const MOST_TARGET_BYTES: usize = 4095;
/// The property that a directory passes on.
const COMPRESSION: &[u8] = b"btrfs.compression";

/// What a new inode is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; in a directory with its setgid bit set, the directory's is taken.
    pub gid: u32,
    /// Major and minor number of a device node, zeros for anything else.
    pub device: (u32, u32),
}

impl Inode {
    /// Makes an inode named `name` in this directory: a file, a directory, a device node, a pipe or a
    /// socket. It inherits flags and properties about compression and copying; default ACLs are not
    /// looked at.
    ///
    /// # Errors
    /// `EEXIST`, `ENAMETOOLONG`, `EOVERFLOW` for too many names of one hash, `EPERM`, `EROFS`, `ENOSPC`.
    pub fn create(&self, name: &[u8], new: &NewInode) -> Result<Self> {
        if new.file_type()? == FileType::Symlink {
            return Err(Error::Invalid("a symbolic link has a target"));
        }
        self.make(name, new, None)
    }

    /// Makes a symbolic link named `name` in this directory; the type in the mode is not looked at.
    pub fn symlink(&self, name: &[u8], target: &[u8], new: &NewInode) -> Result<Self> {
        let nodesize = self.subvolume().filesystem().volume().nodesize() as usize;
        let most = leaf_data_size(nodesize) - ITEM_HEADER_SIZE - size_of::<FileExtentHeader>();
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        let sector = self.subvolume().filesystem().sectorsize() as usize;
        if target.len() > MOST_TARGET_BYTES.min(most).min(sector - 1) {
            return Err(Error::NameTooLong);
        }
        let new = NewInode { mode: 0o120_777, device: (0, 0), ..*new };
        self.make(name, &new, Some(target))
    }

    fn make(&self, name: &[u8], new: &NewInode, target: Option<&[u8]>) -> Result<Self> {
        let (writer, directory) = (self.writer()?, self.node()?);
        self.expect_directory()?;
        check_name(name)?;
        let file_type = new.file_type()?;
        let handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        let mut locked = Locked::new([directory]);
        let state = locked.of(directory);
        state.check_may_name()?;
        if self.find(name)?.is_some() {
            return Err(Error::AlreadyExists);
        }
        let mut names = self.names();
        names.check_room(self.number(), name)?;
        let number = self.subvolume().live()?.next_inode()?;
        let item = new_item(new, state, &handle, target);
        let property = inherited_property(self, &item)?;
        apply(&handle, || {
            let index = directory.next_index(state)?;
            let mut reference = Vec::new();
            InodeRef { index, name }.write(&mut reference);
            let location = Key::new(number, ItemType::INODE_ITEM, 0);
            let mut items = vec![
                (location, item.as_bytes().to_vec()),
                (Key::new(number, ItemType::INODE_REF, self.number()), reference),
            ];
            items.extend(property.map(|value| property_item(number, &handle, &value)));
            items.extend(target.map(|target| target_item(number, &handle, target)));
            let items: Vec<(Key, &[u8])> =
                items.iter().map(|(key, data)| (*key, &**data)).collect();
            directory.tree().insert_batch(&items)?;
            names.insert(&NewEntry {
                directory: self.number(),
                name,
                index,
                location,
                file_type: entry_type(file_type),
                generation: handle.generation(),
            })?;
            state.names_grew(handle.generation(), name.len() as i64);
            directory.put_item(state)
        })?;
        let node = writer.nodes().create(self.subvolume(), number, file_type, item)?;
        drop(locked);
        handle.end()?;
        Ok(Self::of_node(self.subvolume().clone(), node))
    }
}

impl NewInode {
    fn file_type(&self) -> Result<FileType> {
        FileType::from_mode(self.mode).ok_or(Error::Invalid("the mode has no type"))
    }
}

/// The type of what a directory entry leads to.
pub(super) fn entry_type(file_type: FileType) -> item::FileType {
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

fn new_item(
    new: &NewInode,
    directory: &NodeState,
    handle: &Handle<'_>,
    target: Option<&[u8]>,
) -> InodeItem {
    const S_ISGID: u32 = 0o2000;
    let mut item = InodeItem::new_zeroed();
    let is_directory = FileType::from_mode(new.mode) == Some(FileType::Directory);
    let is_regular = FileType::from_mode(new.mode) == Some(FileType::Regular);
    item.generation = handle.generation().into();
    item.transid = handle.generation().into();
    item.nlink = 1.into();
    item.mode = new.mode.into();
    item.uid = new.uid.into();
    item.gid = new.gid.into();
    if directory.item.mode.get() & S_ISGID != 0 {
        item.gid = directory.item.gid;
        if is_directory {
            item.mode = (new.mode | S_ISGID).into();
        }
    }
    let (major, minor) = new.device;
    item.rdev = (u64::from(major) << MINOR_BITS | u64::from(minor)).into();
    let inherited = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS | InodeFlags::NODATACOW;
    let mut flags = directory.item.flags() & inherited;
    if flags.contains(InodeFlags::NODATACOW) && is_regular {
        flags |= InodeFlags::NODATASUM;
    }
    if target.is_none() {
        item.flags = flags.bits().into();
    }
    let len_bytes = target.map_or(0, <[u8]>::len) as u64;
    (item.size, item.nbytes) = (len_bytes.into(), len_bytes.into());
    let now = now();
    (item.atime, item.ctime, item.mtime, item.otime) = (now, now, now, now);
    item
}

/// The property about compression that files and directories take over from their directory.
fn inherited_property(directory: &Inode, item: &InodeItem) -> Result<Option<Vec<u8>>> {
    let file_type = FileType::from_mode(item.mode.get());
    if !matches!(file_type, Some(FileType::Regular | FileType::Directory)) {
        return Ok(None);
    }
    match directory.xattr(COMPRESSION) {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoSuchAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

fn property_item(number: u64, handle: &Handle<'_>, value: &[u8]) -> (Key, Vec<u8>) {
    let header = DirItemHeader {
        location: Key::MIN.into(),
        transid: handle.generation().into(),
        data_len: (value.len() as u16).into(),
        name_len: (COMPRESSION.len() as u16).into(),
        file_type: item::FileType::Xattr as u8,
    };
    let mut bytes = Vec::new();
    DirEntry { header: &header, name: COMPRESSION, data: value }.write(&mut bytes);
    (Key::new(number, ItemType::XATTR_ITEM, name_hash::dir_name(COMPRESSION)), bytes)
}

fn target_item(number: u64, handle: &Handle<'_>, target: &[u8]) -> (Key, Vec<u8>) {
    let header = FileExtentHeader {
        generation: handle.generation().into(),
        ram_bytes: (target.len() as u64).into(),
        compression: 0,
        encryption: 0,
        other_encoding: 0.into(),
        kind: FileExtentKind::Inline as u8,
    };
    (Key::new(number, ItemType::EXTENT_DATA, 0), [header.as_bytes(), target].concat())
}
