//! Extended attributes: user attributes, security labels, POSIX ACLs (`system.posix_acl_*`, in the
//! form of system calls) and btrfs's own properties (`btrfs.*`) alike.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};

use larder_btree::{Range, Readahead};
use larder_format::item::{DirEntries, XATTR_NAME_MAX};
use larder_format::{ItemType, name_hash};
use larder_platform::OsStrExt;

use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;

/// The prefixes of the names of attributes that an inode can have.
const KNOWN_PREFIXES: [&[u8]; 5] =
    [b"user.", b"trusted.", b"security.", b"btrfs.", b"system.posix_acl_"];

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The name with its namespace: `user.mime_type`, `system.posix_acl_access`.
    pub name: OsString,
    /// The value, as system calls give it.
    pub value: Vec<u8>,
}

/// Iterates over extended attributes in the order of their names' hashes. After an error it goes on
/// with the next attribute that can be read.
#[derive(Debug)]
pub struct Xattrs {
    subvolume: Subvolume,
    items: Range,
    /// The rest of the item that was read last: names of one hash share it.
    ready: VecDeque<Xattr>,
}

impl Inode {
    /// Its extended attributes, including POSIX ACLs and btrfs's properties.
    pub fn xattrs(&self) -> Xattrs {
        let range = self.key(ItemType::XATTR_ITEM, 0)..=self.key(ItemType::XATTR_ITEM, u64::MAX);
        let subvolume = self.subvolume().clone();
        let items = subvolume.view().range(range, Readahead::Forward);
        Xattrs { subvolume, items, ready: VecDeque::new() }
    }

    /// The value of the extended attribute `name`, with its namespace.
    ///
    /// # Errors
    /// `ENODATA` if there is none of this name, `EOPNOTSUPP` and `EINVAL` if there cannot be.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.xattr_named(name.as_ref().as_bytes())
    }

    pub(crate) fn xattr_named(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name.len() > XATTR_NAME_MAX {
            return Err(Error::NoSuchAttribute);
        }
        let key = self.key(ItemType::XATTR_ITEM, name_hash::dir_name(name));
        let item = self.subvolume().view().get(key)?.ok_or_else(|| missing(name))?;
        for entry in DirEntries::new(&item) {
            let entry = entry.map_err(|problem| self.subvolume().bad_item(key, problem))?;
            if entry.name == name {
                return Ok(entry.data.to_vec());
            }
        }
        Err(missing(name))
    }
}

/// The error if there is no attribute `name`.
fn missing(name: &[u8]) -> Error {
    let is_known = KNOWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    match name {
        b"user." | b"trusted." | b"security." | b"btrfs." => {
            Error::Invalid("a name of an extended attribute")
        }
        _ if is_known => Error::NoSuchAttribute,
        _ => Error::NoSuchNamespace,
    }
}

impl Xattrs {
    fn advance(&mut self) -> Result<Option<Xattr>> {
        while self.ready.is_empty() {
            let Some((key, bytes)) = self.items.next_item()? else { return Ok(None) };
            for entry in DirEntries::new(bytes) {
                let entry = entry.map_err(|problem| self.subvolume.bad_item(key, problem))?;
                let name = OsStr::from_bytes(entry.name).to_owned();
                let value = entry.data.to_vec();
                self.ready.push_back(Xattr { name, value });
            }
        }
        Ok(self.ready.pop_front())
    }
}

impl Iterator for Xattrs {
    type Item = Result<Xattr>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
