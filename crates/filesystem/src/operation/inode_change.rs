//! A change of inode items: attributes, and names with their inodes.

use std::sync::Arc;

use larder_transaction::Handle;
use larder_transaction::space::Priority;

use crate::change::changeable::Changeable;
use crate::change::locks::{LockedInode, LockedInodes};
use crate::core::writer::Writer;
use crate::error::Result;
use crate::live::inode::LiveInode;
use crate::live::subvolume::LiveSubvolume;
use crate::operation::limits::reserve_quota;
use crate::writeback::delayed::relieve;

/// The space for a change of items.
#[derive(Clone, Copy)]
pub(crate) struct ItemReservation {
    /// The most items that are inserted.
    items: u64,
    /// References to data that are dropped at most.
    references: u64,
    /// Items that make the subvolume larger; 0 if they are not counted against its quota.
    growing: Option<u64>,
    priority: Priority,
}

/// Inodes whose items may be changed now: in the running transaction, with their states locked, and
/// with space reserved.
pub(crate) struct InodeChange<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) locked: LockedInodes<'a>,
    pub(crate) handle: Handle<'a>,
}

impl ItemReservation {
    /// For a change that makes its subvolume larger by up to `items` items.
    pub(crate) fn adding(items: u64) -> Self {
        Self { items, references: 0, growing: Some(items), priority: Priority::Normal }
    }

    /// For a change of existing items.
    pub(crate) fn changing(items: u64) -> Self {
        Self { items, references: 0, growing: None, priority: Priority::Normal }
    }

    /// For a change that removes more than it adds from the tree of `subvolume`.
    pub(crate) fn removing(items: u64, subvolume: &LiveSubvolume) -> Self {
        let priority = subvolume.deletion_priority();
        Self { items, references: 0, growing: None, priority }
    }

    /// The same, for a change that also drops `references` references to data.
    pub(crate) fn dropping(self, references: u64) -> Self {
        Self { references, ..self }
    }

    /// The same, if only `items` make the subvolume larger.
    pub(crate) fn growing_by(self, items: u64) -> Self {
        Self { growing: Some(items), ..self }
    }
}

impl<'a> InodeChange<'a> {
    /// Reserves space, joins the running transaction to change the subvolume of an inode, and locks
    /// the inode's state.
    ///
    /// # Errors
    /// `EROFS`, `ENOSPC`, `EDQUOT`.
    pub(crate) fn start(
        target: Changeable<'a>,
        reservation: ItemReservation,
    ) -> Result<(Self, LockedInode<'a>)> {
        let (change, [inode]) = Self::start_with(target, reservation, [target.live])?;
        Ok((change, inode))
    }

    /// Like [`start`](Self::start), for several inodes, some of which may be given twice: `target`
    /// tells the subvolume.
    pub(crate) fn start_with<const N: usize>(
        target: Changeable<'a>,
        reservation: ItemReservation,
        inodes: [&'a Arc<LiveInode>; N],
    ) -> Result<(Self, [LockedInode<'a>; N])> {
        let started = Self::join(target, reservation, inodes)?;
        target.subvolume.check_writable()?;
        Ok(started)
    }

    /// Like [`start`](Self::start), to change a file that was opened for writing: that decided
    /// whether its subvolume may change.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`.
    pub(crate) fn start_on_open(
        file: Changeable<'a>,
        reservation: ItemReservation,
    ) -> Result<(Self, LockedInode<'a>)> {
        let (change, [inode]) = Self::join(file, reservation, [file.live])?;
        Ok((change, inode))
    }

    fn join<const N: usize>(
        target: Changeable<'a>,
        reservation: ItemReservation,
        inodes: [&'a Arc<LiveInode>; N],
    ) -> Result<(Self, [LockedInode<'a>; N])> {
        let Changeable { core, writer, subvolume, .. } = target;
        let quota = match reservation.growing {
            Some(items) => reserve_quota(core, subvolume.tree().id(), 0, items)?,
            None => None,
        };
        relieve(writer)?;
        let ItemReservation { items, references, priority, .. } = reservation;
        let mut handle = writer.manager.start_referring(items, references, priority)?;
        handle.keep_quota(quota);
        let (locked, inodes) = LockedInodes::new(inodes);
        Ok((Self { writer, locked, handle }, inodes))
    }

    /// Unlocks the states. The changes that are left need none.
    pub(crate) fn unlock(self) -> Handle<'a> {
        self.handle
    }

    /// Unlocks the states and leaves the transaction.
    pub(crate) fn end(self) -> Result<()> {
        let Self { locked, handle, .. } = self;
        drop(locked);
        Ok(handle.end()?)
    }
}
