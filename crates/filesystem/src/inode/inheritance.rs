//! What a new inode inherits from its directory.
//!
//! - Flags about compression and copying: every inode.
//! - The compression property: files and directories, as the bare name of the algorithm.
//! - The default ACL: all except symbolic links; directories pass it on. It replaces the umask.
//! - Subvolumes differ: see [`inherited_by_subvolume`].
//! - The group, in a directory with setgid; directories inherit that bit too.

use std::sync::Arc;

use larder_format::{FormatError, ItemType, name_hash};

use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::item::acl;
use crate::item::acl::Acl;
use crate::item::new::NewInode;
use crate::item::property::{COMPRESSION, inheritable};
use crate::live::inherited::Inherited;
use crate::live::inode::InodeState;

/// The bits of a mode that ACLs and a umask change.
const PERMISSIONS: u32 = 0o777;

/// What new inodes inherit from this directory, whose state is `state`. It is looked up once, and
/// again after the directory's extended attributes have changed.
pub(crate) fn inherited(directory: &Inode, state: &mut InodeState) -> Result<Arc<Inherited>> {
    if let Some(known) = &state.inherited {
        return Ok(known.clone());
    }
    let value = |name| match directory.xattr_named(name) {
        Err(Error::NoSuchAttribute) => Ok(None),
        found => found.map(Some),
    };
    let default_acl = Acl::parse(&value(acl::DEFAULT)?.unwrap_or_default()).map_err(|_| {
        let key = directory.key(ItemType::XATTR_ITEM, name_hash::dir_name(acl::DEFAULT));
        directory.subvolume().bad_item(key, FormatError::invalid("default ACL", "it is none"))
    })?;
    let compression = value(COMPRESSION)?.and_then(|value| inheritable(&value));
    let inherited = Arc::new(Inherited { default_acl, compression });
    state.inherited = Some(inherited.clone());
    Ok(inherited)
}

/// What a new subvolume inherits from this directory, whose state is `state`. The default ACL
/// limits the permissions that the umask leaves to its root, and is not passed on. The compression property comes from
/// the root of the subvolume around it.
pub(crate) fn inherited_by_subvolume(
    directory: &Inode,
    state: &mut InodeState,
    new: &NewInode,
) -> Result<(u32, Option<&'static [u8]>)> {
    let inherited = inherited(directory, state)?;
    let permissions = new.mode & 0o7777 & !(new.umask & PERMISSIONS);
    let permissions = match &inherited.default_acl {
        None => permissions,
        Some(default) => {
            let mut access = default.clone();
            access.restrict(permissions);
            permissions & !PERMISSIONS | access.permissions()
        }
    };
    let compression = match directory.subvolume().root()?.xattr_named(COMPRESSION) {
        Err(Error::NoSuchAttribute) => None,
        value => inheritable(&value?),
    };
    Ok((permissions, compression))
}
