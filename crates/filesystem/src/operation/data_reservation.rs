//! Reserving space for data before a file is changed.

use larder_transaction::space::{Priority, SpaceKind};

use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::file::writeback::reservation::DataReservation;
use crate::inode::delayed::flush::relieve;
use crate::inode::live::InodeState;
use crate::operation::limits::reserve_quota;

/// Items that writeback of a file takes besides its extents: the inode, and the cut.
const ITEMS: u64 = 4;

/// Tree blocks that writeback of a file adds to its subvolume.
pub(crate) const QUOTA_BLOCKS: u64 = 1;

/// Items that a run of dirty data takes: extent, checksums.
const ITEMS_PER_RUN: u64 = 2;

impl Writer {
    /// Reserves space for `data_bytes` more of dirty data in `runs` more runs.
    pub(crate) fn reserve_data(&self, data_bytes: u64, runs: u64) -> Result<DataReservation> {
        self.reserve_with(Priority::Normal, data_bytes, runs)
    }

    /// Like [`reserve_data`](Self::reserve_data), for changes that remove more than they add.
    pub(crate) fn reserve_to_delete(&self, data_bytes: u64, runs: u64) -> Result<DataReservation> {
        self.reserve_with(Priority::Deleting, data_bytes, runs)
    }

    fn reserve_with(
        &self,
        priority: Priority,
        data_bytes: u64,
        runs: u64,
    ) -> Result<DataReservation> {
        relieve(self)?;
        let items = ITEMS + ITEMS_PER_RUN * runs;
        let metadata_bytes = self.manager.space().insertion_bytes(items);
        let reserve = |kind, len_bytes| self.manager.reserve(kind, len_bytes, priority);
        let metadata = reserve(SpaceKind::Metadata, metadata_bytes)?;
        Ok(DataReservation { data: reserve(SpaceKind::Data, data_bytes)?, metadata, quota: None })
    }
}

/// Reserves space as [`Writer::reserve_data`] does, within the quota of a subvolume.
pub(crate) fn reserve_within_quota(
    core: &Core,
    subvolume: u64,
    data_bytes: u64,
    runs: u64,
) -> Result<DataReservation> {
    let quota = reserve_quota(core, subvolume, data_bytes, QUOTA_BLOCKS)?;
    Ok(DataReservation { quota, ..core.writer()?.reserve_data(data_bytes, runs)? })
}

impl InodeState {
    /// Gives back the reservation that writeback does not need.
    pub(crate) fn shrink_reservation(&mut self, writer: &Writer) {
        let items = ITEMS + ITEMS_PER_RUN * self.pages.run_count() as u64;
        let metadata_bytes = writer.manager.space().insertion_bytes(items);
        let data_bytes = self.pages.dirty_bytes();
        if let Some(reservation) = self.pages.reservation() {
            reservation.data.shrink_to(data_bytes);
            reservation.metadata.shrink_to(metadata_bytes);
            if let Some(quota) = &mut reservation.quota {
                let nodesize = u64::from(writer.manager.volume().nodesize());
                quota.shrink_to(data_bytes + QUOTA_BLOCKS * nodesize);
            }
        }
    }
}
