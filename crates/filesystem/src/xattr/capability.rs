//! Capabilities of programs: any change of a program's content removes them, as in the kernel.
//!
//! # Invariants
//! - An inode that is known to have no capabilities has none in its tree. This becomes known with
//!   the state locked, and is forgotten before an attribute is set.
//! - Only what a kernel would store is set: capabilities of a revision, in its length.

use crate::changed::apply;
use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// The extended attribute that gives a program capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// The inode and the attribute.
const ITEMS: u64 = 2;
/// The revisions in the upper byte of `magic_etc`, and the length of `struct vfs_cap_data` and of
/// `struct vfs_ns_cap_data`.
const FORMS: [(u8, usize); 2] = [(2, 20), (3, 24)];

/// Refuses a `value` of the attribute `name` if it should be capabilities and is none. The kernel
/// takes nothing for none.
pub(crate) fn check_capability(name: &[u8], value: &[u8]) -> Result<()> {
    let is_form = |&(revision, len)| value.len() == len && value[3] == revision;
    if name == CAPABILITY && !value.is_empty() && !FORMS.iter().any(is_form) {
        return Err(Error::Invalid("these are no capabilities of a program"));
    }
    Ok(())
}

/// Removes capabilities from a regular file whose content is about to change. They are searched for
/// once.
pub(crate) fn drop_capability(inode: &Inode) -> Result<()> {
    let target = inode.changeable()?;
    let live = target.live;
    if live.read().has_no_capability {
        return Ok(());
    }
    let mut state = live.write();
    match inode.xattr_named(CAPABILITY) {
        Err(Error::NoSuchAttribute) => {
            state.has_no_capability = true;
            return Ok(());
        }
        found => drop(found?),
    }
    drop(state);
    let reservation = ItemReservation::removing(ITEMS, target.subvolume);
    let (mut change, live) = InodeChange::start(target, reservation)?;
    let InodeChange { locked, handle, .. } = &mut change;
    let state = locked.of(live);
    state.check_mutable()?;
    let capability = inode.plan_xattr(CAPABILITY, None, handle.generation())?;
    state.touch(handle.generation(), false);
    apply(handle, || {
        capability.apply(&live)?;
        live.put_item(state)
    })?;
    state.has_no_capability = true;
    change.end()
}
