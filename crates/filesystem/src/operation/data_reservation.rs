//! Reserving space for data before a file is changed.

use larder_transaction::Error as EngineError;
use larder_transaction::space::{Priority, SpaceKind};

use crate::cache::reservation::DataReservation;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::live::inode::InodeState;
use crate::operation::limits::reserve_quota;
use crate::writeback::delayed::relieve;

/// Items that writeback of a file takes besides its runs of data: the inode, and both sides of a cut.
const ITEMS: u64 = 3;

/// Tree blocks that writeback of a file adds to its subvolume.
pub(crate) const QUOTA_BLOCKS: u64 = 1;

/// Items that a run of dirty data takes: extent, checksums, and the extent in the extent tree.
const ITEMS_PER_RUN: u64 = 3;

/// The changes of a file that space is reserved for.
#[derive(Clone, Copy, Default)]
pub(crate) struct DataNeed {
    /// Bytes of dirty data.
    pub(crate) data_bytes: u64,
    /// Runs of dirty data.
    pub(crate) runs: u64,
    /// File extents that are inserted, apart from those for dirty data.
    pub(crate) extents: u64,
    /// References to data that are added or dropped, apart from those to dirty data.
    pub(crate) references: u64,
}

impl DataNeed {
    /// For `data_bytes` of dirty data in `runs` runs.
    pub(crate) fn of_data(data_bytes: u64, runs: u64) -> Self {
        Self { data_bytes, runs, ..Self::default() }
    }

    /// Items of the trees, at most.
    fn items(self) -> u64 {
        ITEMS + ITEMS_PER_RUN * self.runs + self.extents
    }
}

impl Writer {
    /// Reserves space for a change of a file.
    pub(crate) fn reserve_data(&self, need: DataNeed) -> Result<DataReservation> {
        self.reserve_with(Priority::Normal, need)
    }

    /// Like [`reserve_data`](Self::reserve_data), for changes that remove more than they add, with
    /// the priority of such changes in their subvolume.
    pub(crate) fn reserve_to_delete(
        &self,
        need: DataNeed,
        priority: Priority,
    ) -> Result<DataReservation> {
        self.reserve_with(priority, need)
    }

    /// How many extents, at most `most`, a change that also needs `need` removes at once.
    pub(crate) fn deletions_at_once(
        &self,
        need: DataNeed,
        most: usize,
        priority: Priority,
    ) -> usize {
        self.manager.space().references_at_once(need.items(), most as u64, priority) as usize
    }

    /// How many extents, at most `most`, a change that also needs `need` shares at once.
    pub(crate) fn sharings_at_once(&self, need: DataNeed, most: u64) -> u64 {
        let space = self.manager.space();
        let items = need.items() + 2 * most;
        (space.references_at_once(items, 2 * most, Priority::Normal) / 2).max(1)
    }

    fn reserve_with(&self, priority: Priority, need: DataNeed) -> Result<DataReservation> {
        relieve(self)?;
        let space = self.manager.space();
        let metadata_bytes =
            space.insertion_bytes(need.items()) + space.reference_bytes(need.references);
        let reserve = |kind, len_bytes| self.manager.reserve(kind, len_bytes, priority);
        let metadata = reserve(SpaceKind::Metadata, metadata_bytes)?;
        Ok(DataReservation {
            data: reserve(SpaceKind::Data, need.data_bytes)?,
            metadata,
            quota: None,
        })
    }
}

/// Reserves space as [`Writer::reserve_data`] does, within the quota of a subvolume. While a device
/// has no room, there is none for new data: it would wait in memory.
pub(crate) fn reserve_within_quota(
    core: &Core,
    subvolume: u64,
    need: DataNeed,
) -> Result<DataReservation> {
    let writer = core.writer()?;
    let trouble = writer.manager.volume().trouble();
    if need.data_bytes > 0 && trouble.is_some_and(|trouble| trouble.is_full) {
        let (kind, len_bytes) = (SpaceKind::Data, need.data_bytes);
        return Err(EngineError::NoSpace { kind, len_bytes }.into());
    }
    let quota = reserve_quota(core, subvolume, need.data_bytes, QUOTA_BLOCKS)?;
    Ok(DataReservation { quota, ..writer.reserve_data(need)? })
}

impl InodeState {
    /// Gives back the reservation that writeback does not need.
    pub(crate) fn shrink_reservation(&mut self, writer: &Writer) {
        let data_bytes = self.pages.dirty_bytes();
        let need = DataNeed::of_data(data_bytes, self.pages.run_count() as u64);
        let metadata_bytes = writer.manager.space().insertion_bytes(need.items());
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
