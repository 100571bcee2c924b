//! Changing extended attributes.

use larder_format::item::{
    DirEntries, DirEntry, DirItemHeader, FileType as EntryType, InodeFlags, XATTR_NAME_MAX,
};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, name_hash};
use larder_transaction::space::Priority;
use larder_transaction::{Items, TreeItems};

use super::apply;
use super::node::{Locked, NodeState};
use crate::error::{Error, Result};
use crate::inode::{FileType, Inode};

/// The attribute and the inode.
const ITEMS: u64 = 2;
/// Namespaces that there are; ACLs have two names of their own.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const COMPRESSION: &[u8] = b"btrfs.compression";

/// Whether an extended attribute may or must be there before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// It may.
    Any,
    /// It must not: `EEXIST`.
    Create,
    /// It must: `ENODATA`.
    Replace,
}

impl Inode {
    /// Sets the extended attribute `name`, with its namespace. ACLs have the form that system calls
    /// use, and leave the mode as it is. `btrfs.compression` also sets the flags that it means.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for other namespaces, `EINVAL` for names and values that cannot be, `EEXIST`, `ENODATA`,
    /// `ENOSPC` for one that does not fit a leaf with those of its hash, `EPERM`, `EROFS`.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.check_xattr(name, Some(value))?;
        self.change_xattr(name, |old| match (old, mode) {
            (true, XattrMode::Create) => Err(Error::AlreadyExists),
            (false, XattrMode::Replace) => Err(Error::NoSuchAttribute),
            _ => Ok(Some(value)),
        })
    }

    /// Removes the extended attribute `name`, with its namespace.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`, `EPERM`, `EROFS`, `ENOSPC`.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.check_xattr(name, None)?;
        self.change_xattr(name, |old| if old { Ok(None) } else { Err(Error::NoSuchAttribute) })
    }

    fn check_xattr(&self, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let is_in = |space: &&[u8]| name.starts_with(space);
        let is_property = name == COMPRESSION;
        if !NAMESPACES.iter().any(is_in) && !ACLS.contains(&name) && !is_property {
            return Err(Error::NoSuchNamespace);
        }
        let is_empty = NAMESPACES.contains(&name);
        if is_empty || name.contains(&0) || name.len() > XATTR_NAME_MAX {
            return Err(Error::Invalid("a name of an extended attribute"));
        }
        let has_user_attributes =
            matches!(self.file_type(), FileType::Regular | FileType::Directory);
        if name.starts_with(NAMESPACES[0]) && !has_user_attributes {
            return Err(Error::NotPermitted("only files and directories have attributes of users"));
        }
        if name == ACLS[1] && self.file_type() != FileType::Directory {
            return Err(Error::Invalid("only a directory has a default ACL"));
        }
        if is_property && value.is_some_and(|value| compression_flags(value).is_none()) {
            return Err(Error::Invalid("no such compression"));
        }
        Ok(())
    }

    /// Changes an attribute to what `decide` says about whether it is there.
    fn change_xattr<'v>(
        &self,
        name: &[u8],
        decide: impl FnOnce(bool) -> Result<Option<&'v [u8]>>,
    ) -> Result<()> {
        let (writer, node) = (self.writer()?, self.node()?);
        let handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        let mut locked = Locked::new([node]);
        let state = locked.of(node);
        state.check_may_unname()?;
        let mut items = TreeItems::new(node.tree().clone());
        let key = node.key(ItemType::XATTR_ITEM, name_hash::dir_name(name));
        let stored = items.get(key)?;
        let (mut data, mut was_there) = (Vec::new(), false);
        for entry in DirEntries::new(stored.as_deref().unwrap_or_default()) {
            let entry = entry.map_err(|problem| self.subvolume().bad_item(key, problem))?;
            if entry.name == name {
                was_there = true;
            } else {
                entry.write(&mut data);
            }
        }
        let value = decide(was_there)?;
        if let Some(value) = value {
            self.append(&mut data, handle.generation(), name, value)?;
        }
        if name == COMPRESSION {
            state.set_compression(value.unwrap_or_default());
        }
        state.touch(handle.generation(), false);
        apply(&handle, || {
            match (&stored, data.is_empty()) {
                (Some(_), true) => items.remove(key)?,
                (Some(_), false) => items.replace(key, &data)?,
                (None, _) => items.insert(key, &data)?,
            }
            node.put_item(state)
        })?;
        drop(locked);
        Ok(handle.end()?)
    }

    /// Appends an attribute to what those of its hash have, if there is room.
    fn append(&self, data: &mut Vec<u8>, generation: u64, name: &[u8], value: &[u8]) -> Result<()> {
        let nodesize = self.subvolume().filesystem().volume().nodesize() as usize;
        let most = leaf_data_size(nodesize) - ITEM_HEADER_SIZE;
        if data.len() + DirEntry::len_bytes(name.len(), value.len()) > most {
            return Err(Error::AttributeTooLarge);
        }
        let header = DirItemHeader {
            location: Key::MIN.into(),
            transid: generation.into(),
            data_len: (value.len() as u16).into(),
            name_len: (name.len() as u16).into(),
            file_type: EntryType::Xattr as u8,
        };
        DirEntry { header: &header, name, data: value }.write(data);
        Ok(())
    }
}

/// The flags that a compression property means; `None` if there is no such.
fn compression_flags(value: &[u8]) -> Option<InodeFlags> {
    match value {
        b"" => Some(InodeFlags::empty()),
        b"no" | b"none" => Some(InodeFlags::NOCOMPRESS),
        b"zlib" | b"lzo" | b"zstd" => Some(InodeFlags::COMPRESS),
        _ => None,
    }
}

impl NodeState {
    fn set_compression(&mut self, value: &[u8]) {
        let both = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        let flags =
            self.item.flags() & !both | compression_flags(value).unwrap_or(InodeFlags::empty());
        self.item.flags = flags.bits().into();
    }
}
