//! Snapshots, which are taken in a commit: nobody can change one before it is durable.

use std::sync::Arc;

use larder_format::item::{INODE_ROOT_ITEM_INIT, ROOT_SUBVOL_RDONLY, RootItem};
use larder_format::{Key, Uuid};
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Exclusive, NewSnapshot, now};
use parking_lot::Mutex;
use zerocopy::FromZeros;

use crate::core::writer::Changed;
use crate::directory::names::check_name;
use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::inode::handle::Inode;
use crate::inode::live::Locked;
use crate::subvolume::create::{ITEMS, NAME_ITEMS};
use crate::subvolume::handle::Subvolume;

/// Snapshots that the next commit takes.
#[derive(Default)]
pub(crate) struct PendingSnapshots {
    queue: Mutex<Vec<Arc<Pending>>>,
}

struct Pending {
    source: u64,
    id: u64,
    directory: Inode,
    name: Vec<u8>,
    is_read_only: bool,
    /// What came of it.
    outcome: Mutex<Option<Result<()>>>,
}

impl Subvolume {
    /// Takes a snapshot of this subvolume as it is now, named `name` in `directory`, which may lie in
    /// any subvolume. It is durable when this returns.
    ///
    /// # Errors
    /// As [`create`](Inode::create).
    pub fn snapshot(&self, directory: &Inode, name: &[u8], is_read_only: bool) -> Result<Self> {
        let filesystem = self.filesystem();
        let writer = filesystem.writer()?;
        directory.expect_directory()?;
        check_name(name)?;
        let _subvolumes = writer.subvolumes.lock();
        self.live()?.check_not_deleted()?;
        let _quota = directory.subvolume().reserve_quota(0, NAME_ITEMS)?;
        let reservation = writer.manager.space().insertion_bytes(ITEMS);
        let _reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Normal)?;
        let pending = Arc::new(Pending {
            source: self.id(),
            id: writer.next_subvolume()?,
            directory: directory.clone(),
            name: name.to_vec(),
            is_read_only,
            outcome: Mutex::default(),
        });
        writer.snapshots.queue.lock().push(pending.clone());
        let committed = filesystem.sync();
        writer.snapshots.queue.lock().clear();
        let outcome = pending.outcome.lock().take();
        // What it says is more to the point than that the commit failed because of it.
        match outcome {
            Some(outcome) => outcome?,
            None => return Err(committed.err().unwrap_or(Error::NotWritable)),
        }
        committed?;
        // Files that are open in the source without a name are nobody's in the snapshot. As the kernel
        // does, it is emptied of them at once: `btrfs check` stumbles over two snapshots that share one.
        // What fails stays listed, and is deleted when the file system is opened for writing again.
        let _ = writer.resume_orphans(pending.id);
        filesystem.subvolume(pending.id)
    }
}

impl Filesystem {
    /// Puts all delayed items into their trees and takes the snapshots that are pending. The door is
    /// closed. An error leaves something half done.
    pub(crate) fn take_snapshots(&self, exclusive: &Exclusive<'_>) -> Changed<()> {
        let Some(writer) = self.try_writer() else { return Ok(()) };
        writer.flush_delayed_in(exclusive)?;
        let pending = std::mem::take(&mut *writer.snapshots.queue.lock());
        for pending in pending {
            let outcome = match pending.check() {
                Ok(()) => pending.take(exclusive).map_err(Error::from),
                Err(error) => Err(error),
            };
            let failed = match &outcome {
                Err(Error::Engine(error)) => Err(error.clone()),
                _ => Ok(()),
            };
            *pending.outcome.lock() = Some(outcome);
            failed?;
            // The name of this one may be in the source of the next.
            writer.flush_delayed_in(exclusive)?;
        }
        Ok(())
    }
}

impl Pending {
    fn check(&self) -> Result<()> {
        let directory = self.directory.live_inode()?;
        let subvolume = self.directory.subvolume().live()?;
        subvolume.check_writable()?;
        subvolume.check_not_deleted()?;
        directory.read().check_may_name()?;
        self.directory.names().check_free(self.directory.number(), &self.name)
    }

    fn take(&self, exclusive: &Exclusive<'_>) -> Changed<()> {
        let generation = exclusive.manager().generation();
        let uuid = Uuid::new_v4();
        let snapshot = NewSnapshot { source: self.source, id: self.id };
        exclusive.snapshot(snapshot, |item| self.configure(item, uuid, generation))?;
        let live = self.directory.try_live_inode().expect("it was checked");
        let mut locked = Locked::new([live]);
        let state = locked.of(live);
        let index = live.next_index(state)?;
        self.directory.enter_subvolume(self.id, &self.name, index, generation)?;
        state.names_grew(generation, self.name.len() as i64);
        live.put_item(state)?;
        let writer = self.directory.subvolume().filesystem().try_writer();
        let writer = writer.expect("it is being changed");
        writer.enter_uuid(uuid, self.id)?;
        let received = writer.manager.root_item(self.id).map(|(_, item)| item.received_uuid());
        writer.enter_received_uuid(received.unwrap_or_default(), self.id)
    }

    /// Makes of a copy of the source's root item that of the snapshot.
    fn configure(&self, item: &mut RootItem, uuid: Uuid, generation: u64) {
        item.parent_uuid = item.uuid;
        item.uuid = *uuid.as_bytes();
        item.otransid = generation.into();
        item.otime = now();
        item.inode.flags = (item.inode.flags.get() | INODE_ROOT_ITEM_INIT).into();
        item.drop_progress = Key::MIN.into();
        item.drop_level = 0;
        let flags = item.flags.get() & !ROOT_SUBVOL_RDONLY;
        if self.is_read_only {
            item.flags = (flags | ROOT_SUBVOL_RDONLY).into();
            return;
        }
        item.flags = flags.into();
        // It will differ from what was received.
        item.received_uuid = [0; 16];
        (item.stransid, item.rtransid) = (0.into(), 0.into());
        item.stime = FromZeros::new_zeroed();
        item.rtime = FromZeros::new_zeroed();
    }
}
