//! What a new inode takes over from the directory that it is made in.
//!
//! - Flags about compression and copying: every inode.
//! - The property about compression: files and directories, as the bare name of the algorithm.
//! - The default ACL: everything but symbolic links; directories pass it on. Where there is one it
//!   takes the place of the umask.
//! - Subvolumes differ: see [`Inode::inherited_by_subvolume`].
//! - The group, in a directory with its setgid bit set; directories take that bit over too.

use std::sync::Arc;

use larder_format::item::{InodeFlags, InodeItem};
use larder_format::{FormatError, ItemType, Key, name_hash};

use crate::directory::create::NewInode;
use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::live::InodeState;
use crate::inode::metadata::FileType;
use crate::xattr::acl;
use crate::xattr::acl::Acl;
use crate::xattr::property::{COMPRESSION, inheritable};
use crate::xattr::set::attribute;

const S_ISGID: u32 = 0o2000;
/// The bits of a mode that ACLs and a umask are about.
const PERMISSIONS: u32 = 0o777;

/// What a directory's extended attributes say about what is made in it.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    default_acl: Option<Acl>,
    compression: Option<&'static [u8]>,
}

impl Inode {
    /// What this directory, whose state is `state`, passes on. It is looked up once, and again after
    /// its extended attributes have changed.
    pub(crate) fn inherited(&self, state: &mut InodeState) -> Result<Arc<Inherited>> {
        if let Some(known) = &state.inherited {
            return Ok(known.clone());
        }
        let value = |name| match self.xattr(name) {
            Err(Error::NoSuchAttribute) => Ok(None),
            found => found.map(Some),
        };
        let default_acl = Acl::parse(&value(acl::DEFAULT)?.unwrap_or_default()).map_err(|_| {
            let key = self.key(ItemType::XATTR_ITEM, name_hash::dir_name(acl::DEFAULT));
            self.subvolume().bad_item(key, FormatError::invalid("default ACL", "it is none"))
        })?;
        let compression = value(COMPRESSION)?.and_then(|value| inheritable(&value));
        let inherited = Arc::new(Inherited { default_acl, compression });
        state.inherited = Some(inherited.clone());
        Ok(inherited)
    }
}

impl Inherited {
    /// Has the item of a new inode, made as `new` says, take over what it does from `directory`.
    /// Returns the names and values of its extended attributes.
    pub(crate) fn pass_on(
        &self,
        new: &NewInode,
        file_type: FileType,
        directory: &InodeItem,
        item: &mut InodeItem,
    ) -> Vec<(&'static [u8], Vec<u8>)> {
        let mut attributes = Vec::new();
        let is_directory = file_type == FileType::Directory;
        if directory.mode.get() & S_ISGID != 0 {
            item.gid = directory.gid;
            item.mode = (new.mode | if is_directory { S_ISGID } else { 0 }).into();
        }
        let passed_on = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS | InodeFlags::NODATACOW;
        let mut flags = directory.flags() & passed_on;
        let is_regular = file_type == FileType::Regular;
        flags.set(InodeFlags::NODATASUM, is_regular && flags.contains(InodeFlags::NODATACOW));
        item.flags = flags.bits().into();
        if (is_regular || is_directory)
            && let Some(compression) = self.compression
        {
            attributes.push((COMPRESSION, compression.to_vec()));
        }
        match &self.default_acl {
            _ if file_type == FileType::Symlink => {}
            None => item.mode = (item.mode.get() & !(new.umask & PERMISSIONS)).into(),
            Some(default) => {
                let mut access = default.clone();
                access.restrict(item.mode.get());
                item.mode = (item.mode.get() & !PERMISSIONS | access.permissions()).into();
                if !access.is_mode() {
                    attributes.push((acl::ACCESS, access.to_bytes()));
                }
                if is_directory {
                    attributes.push((acl::DEFAULT, default.to_bytes()));
                }
            }
        }
        attributes
    }
}

impl Inode {
    /// What a new subvolume in this directory, whose state is `state`, takes over: the default ACL takes from
    /// the permissions that its root would have, and is not passed on; the property about compression is that
    /// of the root of the subvolume around it.
    pub(crate) fn inherited_by_subvolume(
        &self,
        state: &mut InodeState,
        permissions: u32,
    ) -> Result<(u32, Option<&'static [u8]>)> {
        let inherited = self.inherited(state)?;
        let permissions = match &inherited.default_acl {
            None => permissions,
            Some(default) => {
                let mut access = default.clone();
                access.restrict(permissions);
                permissions & !PERMISSIONS | access.permissions()
            }
        };
        let compression = match self.subvolume().root()?.xattr(COMPRESSION) {
            Err(Error::NoSuchAttribute) => None,
            value => inheritable(&value?),
        };
        Ok((permissions, compression))
    }
}

/// The item of an extended attribute that is the only one of its hash.
pub(crate) fn attribute_item(
    number: u64,
    generation: u64,
    name: &[u8],
    value: &[u8],
) -> (Key, Vec<u8>) {
    let key = Key::new(number, ItemType::XATTR_ITEM, name_hash::dir_name(name));
    (key, attribute(generation, name, value))
}
