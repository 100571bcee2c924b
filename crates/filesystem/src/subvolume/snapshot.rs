//! Snapshots, which are taken in a commit: no thread can change one before it is durable.

use std::sync::Arc;

use larder_transaction::space::{Priority, SpaceKind};
use parking_lot::Mutex;

use crate::directory::handle::Directory;
use crate::directory::names::check_name;
use crate::error::{Error, Result};
use crate::inode::orphan_deletion::resume_orphans;
use crate::operation::limits::reserve_quota;
use crate::subvolume::create::{ITEMS, NAME_ITEMS};
use crate::subvolume::handle::Subvolume;
use crate::subvolume::pending_snapshots::Pending;

impl Subvolume {
    /// Takes a snapshot of this subvolume in its current state, named `name` in `directory`, which
    /// may lie in any subvolume. It is durable when this returns.
    ///
    /// # Errors
    /// As [`create`](Directory::create).
    pub fn snapshot(
        &self,
        directory: Directory<'_>,
        name: &[u8],
        is_read_only: bool,
    ) -> Result<Self> {
        let filesystem = self.filesystem();
        let writer = filesystem.writer()?;
        check_name(name)?;
        let subvolumes = writer.subvolumes.lock();
        self.live()?.check_not_deleted()?;
        let _quota = reserve_quota(directory.core(), directory.subvolume().id(), 0, NAME_ITEMS)?;
        let reservation = writer.manager.space().insertion_bytes(ITEMS);
        let _reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Normal)?;
        let pending = Arc::new(Pending {
            source: self.id(),
            id: writer.ids.next_subvolume(&subvolumes, writer.manager.trees().root())?,
            directory: directory.open_inode()?.clone(),
            subvolume: directory.subvolume().shared_live()?,
            name: name.to_vec(),
            is_read_only,
            outcome: Mutex::default(),
        });
        writer.snapshots.queue.lock().push(pending.clone());
        let committed = filesystem.sync();
        writer.snapshots.queue.lock().clear();
        let outcome = pending.outcome.lock().take();
        // The snapshot's own error is more to the point than that the commit failed because of it.
        match outcome {
            Some(outcome) => outcome?,
            None => return Err(committed.err().unwrap_or(Error::NotWritable)),
        }
        committed?;
        // Files that are open in the source without a name have no owner in the snapshot. As in the
        // kernel, they are deleted from it at once: `btrfs check` stumbles over two snapshots that
        // share one. After a failure they stay listed, and are deleted when the file system is
        // opened for writing again.
        let _ = resume_orphans(writer, pending.id);
        filesystem.subvolume(pending.id)
    }
}
