//! Received subvolumes.

use std::sync::atomic::Ordering::Relaxed;

use larder_format::item::{ROOT_SUBVOL_RDONLY, Timespec};
use larder_format::{ItemType, Uuid};
use larder_transaction::space::{Priority, SpaceKind};
use zerocopy::FromZeros;

use crate::changed::Changed;
use crate::commit::uuids::{enter_received_uuid, forget_uuid};
use crate::error::Result;
use crate::handle::subvolume::Subvolume;
use crate::item::metadata::Timestamp;
use crate::writeback::flush::flush_all;

/// Items that are changed: two entries in the uuid tree, the root.
const ITEMS: u64 = 3;

impl Subvolume {
    /// Notes that this subvolume was received from the one with the UUID `uuid`, in the state of
    /// transaction `generation` of that file system, and makes it read-only, in one step. It is
    /// durable when this returns.
    #[doc(hidden)]
    pub fn mark_received(&self, uuid: Uuid, generation: u64) -> Result<()> {
        // No stream says when it was sent.
        self.note_received(uuid, generation, Timespec::new_zeroed(), ROOT_SUBVOL_RDONLY)?;
        Ok(())
    }

    /// Notes that this subvolume was received from the one with the UUID `uuid`, in the state of
    /// transaction `generation` of that file system, sent at `sent`; it stays writable. Returns the
    /// transaction and time of receiving, and is durable then.
    pub fn set_received(
        &self,
        uuid: Uuid,
        generation: u64,
        sent: Timestamp,
    ) -> Result<(u64, Timestamp)> {
        let sent = Timespec::new(sent.seconds, sent.nanoseconds);
        let (generation, time) = self.note_received(uuid, generation, sent, 0)?;
        Ok((generation, time.into()))
    }

    fn note_received(
        &self,
        uuid: Uuid,
        generation: u64,
        sent: Timespec,
        flags: u64,
    ) -> Result<(u64, Timespec)> {
        let filesystem = self.filesystem();
        let (writer, live) = (filesystem.writer()?, self.live()?);
        let _subvolumes = writer.subvolumes.lock();
        // If data cannot be written back, the subvolume is not marked as received. One commit has
        // the data and the mark.
        flush_all(filesystem.core())?;
        let reservation = writer.manager.space().insertion_bytes(ITEMS);
        let reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Normal)?;
        let exclusive = writer.manager.quiesce();
        live.check_writable()?;
        // Nothing would take the uuid away again.
        live.check_not_deleted()?;
        let before = self.root_item().received_uuid();
        let enter = || -> Changed<()> {
            forget_uuid(writer, before, ItemType::UUID_KEY_RECEIVED_SUBVOL, self.id())?;
            enter_received_uuid(writer, uuid, self.id())
        };
        enter().inspect_err(|error| writer.manager.abort(error.clone()))?;
        if flags & ROOT_SUBVOL_RDONLY != 0 {
            live.is_read_only.store(true, Relaxed);
        }
        let received = (exclusive.manager().generation(), larder_device::now().into());
        exclusive.change_root_item(self.id(), |item| {
            item.received_uuid = *uuid.as_bytes();
            (item.stransid, item.rtransid) = (generation.into(), received.0.into());
            (item.stime, item.rtime) = (sent, received.1);
            item.flags = (item.flags.get() | flags).into();
        });
        drop((exclusive, reservation));
        filesystem.sync()?;
        Ok(received)
    }
}
