//! Capabilities of programs: any change of a program's content removes them, as in the kernel.
//!
//! # Invariants
//! - An inode that is known to have no capabilities has none in its tree. This becomes known with
//!   the state locked, and is forgotten before an attribute is set.

use crate::changed::apply;
use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// The extended attribute that gives a program capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// The inode and the attribute.
const ITEMS: u64 = 2;

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
