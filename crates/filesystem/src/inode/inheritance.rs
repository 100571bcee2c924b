//! What a new inode takes over from the directory that it is made in.
//!
//! - Flags about compression and copying: every inode.
//! - The property about compression: files and directories, as the bare name of the algorithm.
//! - The default ACL: everything but symbolic links; directories pass it on. Where there is one it
//!   takes the place of the umask.
//! - Subvolumes differ: see [`inherited_by_subvolume`].
//! - The group, in a directory with its setgid bit set; directories take that bit over too.

use std::sync::Arc;

use larder_format::{FormatError, ItemType, name_hash};

use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::inherited::Inherited;
use crate::inode::live::InodeState;
use crate::xattr::acl;
use crate::xattr::acl::Acl;
use crate::xattr::property::{COMPRESSION, inheritable};

/// The bits of a mode that ACLs and a umask are about.
const PERMISSIONS: u32 = 0o777;

/// What this directory, whose state is `state`, passes on. It is looked up once, and again after
/// its extended attributes have changed.
pub(crate) fn inherited(directory: &Inode, state: &mut InodeState) -> Result<Arc<Inherited>> {
    if let Some(known) = &state.inherited {
        return Ok(known.clone());
    }
    let value = |name| match directory.xattr(name) {
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

/// What a new subvolume in this directory, whose state is `state`, takes over: the default ACL takes from
/// the permissions that its root would have, and is not passed on; the property about compression is that
/// of the root of the subvolume around it.
pub(crate) fn inherited_by_subvolume(
    directory: &Inode,
    state: &mut InodeState,
    permissions: u32,
) -> Result<(u32, Option<&'static [u8]>)> {
    let inherited = inherited(directory, state)?;
    let permissions = match &inherited.default_acl {
        None => permissions,
        Some(default) => {
            let mut access = default.clone();
            access.restrict(permissions);
            permissions & !PERMISSIONS | access.permissions()
        }
    };
    let compression = match directory.subvolume().root()?.xattr(COMPRESSION) {
        Err(Error::NoSuchAttribute) => None,
        value => inheritable(&value?),
    };
    Ok((permissions, compression))
}
