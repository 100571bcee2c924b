//! Files without a name (`O_TMPFILE`): listed as orphans from the start, so that a crash deletes them.

use larder_transaction::{Items, TreeItems};

use crate::core::changed::apply;
use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;
use crate::inode::new::NewInode;
use crate::inode::orphans::orphan_key;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// Inode, three attributes, orphan.
const ITEMS: u64 = 5;

impl Inode {
    /// Makes a regular file that has no name, and takes over from this directory what a file made in it
    /// does. [`link`](Self::link) gives it a name; without one it is deleted once nobody has it open.
    ///
    /// # Errors
    /// `ENOTDIR`, `EINVAL` for what is no regular file, `ENOENT` in a directory that was removed, `EPERM`,
    /// `EROFS`, `ENOSPC`, `EDQUOT`.
    pub fn create_unnamed(&self, new: &NewInode) -> Result<Self> {
        let directory = self.live_inode()?;
        self.expect_directory()?;
        if FileType::from_mode(new.mode) != Some(FileType::Regular) {
            return Err(Error::NotAFile);
        }
        let reservation = ItemReservation::adding(ITEMS);
        let mut change =
            InodeChange::start(self.core(), self.subvolume().live()?, reservation, [directory])?;
        let (handle, locked) = change.parts();
        let state = locked.of(directory);
        state.check_may_name()?;
        let mut draft = self.draft(new, state, handle.generation(), None)?;
        locked.clear();
        draft.item.nlink = 0.into();
        let tree = self.subvolume().live()?.tree();
        apply(handle, || {
            draft.insert(tree, None)?;
            TreeItems::new(tree.clone()).insert(orphan_key(draft.number), &[])
        })?;
        let live = draft.into_live_inode(self.subvolume())?;
        live.write().is_unnamed = true;
        live.opens.unlink();
        change.end()?;
        Ok(Self::of_live_inode(self.subvolume().clone(), live))
    }
}
