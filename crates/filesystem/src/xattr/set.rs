//! Changing extended attributes.

use std::ffi::OsStr;

use larder_format::item::{DirEntries, DirEntry, XATTR_NAME_MAX};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, name_hash};
use larder_platform::OsStrExt;
use larder_transaction::{Items, TreeItems};

use crate::changed::{Changed, apply};
use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::item::acl;
use crate::item::acl::Acl;
use crate::item::attribute::attribute;
use crate::item::metadata::FileType;
use crate::item::property::{COMPRESSION, can_compress, compression_flags, set_compression};
use crate::live::inode::{InodeState, LiveInode};
use crate::operation::inode_change::{InodeChange, ItemReservation};
use crate::xattr::capability::check_capability;

/// The attribute and the inode.
const ITEMS: u64 = 2;
/// The namespaces; ACLs and the compression property have names of their own.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The bits of a mode that an access ACL changes.
const PERMISSIONS: u32 = 0o777;

/// Whether an extended attribute may or must exist before it is set.
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
    /// Sets the extended attribute `name`, with its namespace.
    ///
    /// ACLs have the form of system calls. An access ACL changes the mode, and is stored only if it
    /// says more than a mode can; `mode` is ignored for ACLs, and an empty one is a removal.
    /// `btrfs.compression` also sets the flags that it means. An empty value removes it, and it is
    /// ignored for inodes that are neither file nor directory.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for other namespaces, `EINVAL` for invalid names and values, `EACCES` for a
    /// default ACL of an inode that is no directory, `EEXIST`, `ENODATA`, `ENOSPC` if it does not
    /// fit into a leaf with the others of its hash, `EPERM`, `EROFS`.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.check_name_of_xattr(name)?;
        match name {
            acl::ACCESS | acl::DEFAULT => self.set_acl(name, value),
            COMPRESSION => self.set_compression(value, mode),
            _ => {
                check_capability(name, value)?;
                self.change_xattr(name, Some(value), mode, |_| Ok(()))
            }
        }
    }

    /// Removes the extended attribute `name`, with its namespace. Removing an access ACL does not
    /// change the mode.
    ///
    /// # Errors
    /// `ENODATA` except for ACLs, `EOPNOTSUPP`, `EPERM`, `EROFS`, `ENOSPC`.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.check_name_of_xattr(name)?;
        match name {
            acl::ACCESS | acl::DEFAULT => self.set_acl(name, b""),
            COMPRESSION if !self.has_data_or_names() => Ok(()),
            COMPRESSION => self.set_compression(b"", XattrMode::Replace),
            _ => self.change_xattr(name, None, XattrMode::Replace, |_| Ok(())),
        }
    }

    fn check_name_of_xattr(&self, name: &[u8]) -> Result<()> {
        match name {
            acl::ACCESS | acl::DEFAULT if self.file_type() == FileType::Symlink => {
                Err(Error::NoSuchNamespace)
            }
            acl::ACCESS | acl::DEFAULT | COMPRESSION => Ok(()),
            _ => check_plain_xattr(self.file_type(), name),
        }
    }

    fn has_data_or_names(&self) -> bool {
        matches!(self.file_type(), FileType::Regular | FileType::Directory)
    }

    fn set_acl(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let acl = Acl::parse(value)?;
        if name == acl::DEFAULT && self.file_type() != FileType::Directory {
            return if acl.is_some() { Err(Error::NoDefaultAcl) } else { Ok(()) };
        }
        let permissions = acl.as_ref().filter(|_| name == acl::ACCESS).map(Acl::permissions);
        let kept = acl.filter(|acl| name == acl::DEFAULT || !acl.is_mode());
        let value = kept.as_ref().map(Acl::to_bytes);
        self.change_xattr(name, value.as_deref(), XattrMode::Any, |state| {
            if let Some(permissions) = permissions {
                let mode = state.item.mode.get() & !PERMISSIONS;
                state.item.mode = (mode | permissions).into();
            }
            Ok(())
        })
    }

    fn set_compression(&self, value: &[u8], mode: XattrMode) -> Result<()> {
        if compression_flags(value).is_none() {
            return Err(Error::Invalid("no such compression"));
        }
        let kept = (!value.is_empty()).then_some(value);
        let check = |flags| {
            if kept.is_some() && !can_compress(flags) {
                return Err(Error::Invalid("data that is overwritten in place is not compressed"));
            }
            Ok(())
        };
        // An invalid value is told before a missing attribute.
        check(self.item().flags())?;
        if !self.has_data_or_names() {
            return Ok(());
        }
        let mode = if kept.is_none() && mode == XattrMode::Create { XattrMode::Any } else { mode };
        self.change_xattr(COMPRESSION, kept, mode, |state| {
            check(state.item.flags())?;
            set_compression(&mut state.item, value);
            Ok(())
        })?;
        self.writer()?.note_compression(value);
        Ok(())
    }

    /// Changes an attribute, and with it what `and_also` changes. If that fails, nothing changes.
    fn change_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        and_also: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<()> {
        let target = self.changeable()?;
        let reservation = match value {
            Some(_) => ItemReservation::adding(ITEMS),
            None => ItemReservation::changing(ITEMS),
        };
        let (mut change, live) = InodeChange::start(target, reservation)?;
        let InodeChange { locked, handle, .. } = &mut change;
        let state = locked.of(live);
        state.check_may_unname()?;
        state.has_no_capability = false;
        let planned = self.plan_xattr(name, value, handle.generation())?;
        match (planned.was_there, mode) {
            (true, XattrMode::Create) => return Err(Error::AlreadyExists),
            (false, XattrMode::Replace) => return Err(Error::NoSuchAttribute),
            _ => {}
        }
        and_also(state)?;
        state.inherited = None;
        state.touch(handle.generation(), false);
        apply(handle, || {
            planned.apply(&live)?;
            live.put_item(state)
        })?;
        change.end()
    }

    /// Plans the change of an attribute of this inode, which is locked: to `value`, or its removal.
    pub(crate) fn plan_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        generation: u64,
    ) -> Result<XattrChange> {
        let key = self.key(ItemType::XATTR_ITEM, name_hash::dir_name(name));
        let stored = self.subvolume().view().get(key)?;
        let (mut data, mut was_there) = (Vec::new(), false);
        for entry in DirEntries::new(stored.as_deref().unwrap_or_default()) {
            let entry = entry.map_err(|problem| self.subvolume().bad_item(key, problem))?;
            if entry.name == name {
                was_there = true;
            } else {
                entry.write(&mut data);
            }
        }
        if let Some(value) = value {
            let nodesize = self.core().volume().nodesize() as usize;
            let most = leaf_data_size(nodesize) - ITEM_HEADER_SIZE;
            if data.len() + DirEntry::len_bytes(name.len(), value.len()) > most {
                return Err(Error::AttributeTooLarge);
            }
            data.extend(attribute(generation, name, value));
        }
        Ok(XattrChange { key, has_item: stored.is_some(), was_there, data })
    }
}

/// Refuses the name of an attribute that has no meaning of its own, for inodes of this type.
pub(crate) fn check_plain_xattr(file_type: FileType, name: &[u8]) -> Result<()> {
    if name.starts_with(b"btrfs.") {
        return Err(Error::Invalid("there is no such property"));
    }
    if !NAMESPACES.iter().any(|space| name.starts_with(space)) {
        return Err(Error::NoSuchNamespace);
    }
    let is_empty = NAMESPACES.contains(&name);
    if is_empty || name.contains(&0) || name.len() > XATTR_NAME_MAX {
        return Err(Error::Invalid("a name of an extended attribute"));
    }
    let is_of_users = name.starts_with(NAMESPACES[0]);
    if is_of_users && !matches!(file_type, FileType::Regular | FileType::Directory) {
        return Err(Error::NotPermitted("only files and directories have attributes of users"));
    }
    Ok(())
}

/// A change of one extended attribute that was found to be possible.
pub(crate) struct XattrChange {
    key: Key,
    has_item: bool,
    was_there: bool,
    /// All attributes of its hash after the change.
    data: Vec<u8>,
}

impl XattrChange {
    /// Makes the change, to the live inode that it was planned for and that was locked since.
    pub(crate) fn apply(&self, live: &LiveInode) -> Changed<()> {
        let mut items = TreeItems::new(live.tree().clone());
        match (self.has_item, self.data.is_empty()) {
            (true, true) => items.remove(self.key),
            (true, false) => items.replace(self.key, &self.data),
            (false, false) => items.insert(self.key, &self.data),
            (false, true) => Ok(()),
        }
    }

    /// Whether it removes an attribute that does not exist.
    pub(crate) fn changes_nothing(&self) -> bool {
        !self.has_item && self.data.is_empty()
    }
}
