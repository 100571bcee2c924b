//! Taking snapshots, in a commit.

use larder_format::item::{INODE_ROOT_ITEM_INIT, ROOT_SUBVOL_RDONLY, RootItem};
use larder_format::{Key, Uuid};
use larder_transaction::{Exclusive, NewSnapshot};
use zerocopy::FromZeros;

use crate::change::locks::LockedInodes;
use crate::changed::Changed;
use crate::commit::references::enter_subvolume;
use crate::commit::uuids::{enter_received_uuid, enter_uuid};
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::live::pending_snapshots::Pending;
use crate::writeback::delayed::flush_delayed_in;

/// Inserts all delayed items into their trees and takes the pending snapshots. The door is closed.
/// An error leaves something half done.
pub(crate) fn take_snapshots(writer: &Writer, exclusive: &Exclusive<'_>) -> Changed<()> {
    flush_delayed_in(writer, exclusive)?;
    let pending = std::mem::take(&mut *writer.snapshots.queue.lock());
    for pending in pending {
        let outcome = match pending.check(writer) {
            Ok(()) => pending.take(writer, exclusive).map_err(Error::from),
            Err(error) => Err(error),
        };
        let failed = match &outcome {
            Err(Error::Engine(error)) => Err(error.clone()),
            _ => Ok(()),
        };
        *pending.outcome.lock() = Some(outcome);
        failed?;
        // The name of this one may be in the source of the next.
        flush_delayed_in(writer, exclusive)?;
    }
    Ok(())
}

impl Pending {
    fn check(&self, writer: &Writer) -> Result<()> {
        self.subvolume.check_writable()?;
        self.subvolume.check_not_deleted()?;
        self.directory.read().check_may_name()?;
        writer.names_of(&self.directory).check_free(self.directory.number(), &self.name)
    }

    fn take(&self, writer: &Writer, exclusive: &Exclusive<'_>) -> Changed<()> {
        let generation = exclusive.manager().generation();
        let uuid = Uuid::new_v4();
        let snapshot = NewSnapshot { source: self.source, id: self.id };
        exclusive.snapshot(snapshot, |item| self.configure(item, uuid, generation))?;
        let live = &*self.directory;
        let (mut locked, [place]) = LockedInodes::new([live]);
        let state = locked.of(place);
        let index = live.next_index(state)?;
        enter_subvolume(writer, live, self.id, &self.name, index, generation)?;
        state.names_grew(generation, self.name.len() as i64);
        live.put_item(state)?;
        enter_uuid(writer, uuid, self.id)?;
        let received =
            writer.manager.trees().root_item(self.id).map(|(_, item)| item.received_uuid());
        enter_received_uuid(writer, received.unwrap_or_default(), self.id)
    }

    /// Turns a copy of the source's root item into that of the snapshot.
    fn configure(&self, item: &mut RootItem, uuid: Uuid, generation: u64) {
        item.parent_uuid = item.uuid;
        item.uuid = *uuid.as_bytes();
        item.otransid = generation.into();
        item.otime = larder_device::now().into();
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
