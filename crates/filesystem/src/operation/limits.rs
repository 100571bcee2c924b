//! Keeping subvolumes within the limits of their quota groups.
//!
//! # Invariants
//! - Whoever makes a subvolume larger was promised room within its limits before, and keeps the promise until
//!   what it added is counted: a write until its data is written back, anything else for as long as it has a
//!   handle. So a limit is hit by the call that would pass it, never by writing back.
//! - What takes something away, what changes attributes, and growing a file by a hole ask for nothing.
//! - Sharing data with another subvolume asks for the room of what it adds to the tree only, as in the kernel:
//!   by shared data, and by nothing else but delayed names, a limit can be passed.

use larder_transaction::space::Priority;
use larder_transaction::{Error as EngineError, Handle, QuotaReservation};

use crate::core::writer::Writer;
use crate::error::Result;
use crate::subvolume::handle::Subvolume;

impl Subvolume {
    /// Promises that this subvolume may come to refer to `data_bytes` more of data and `nodes` tree blocks, as
    /// many as items are inserted at most. None where quotas are off.
    ///
    /// The caller holds nothing but `renames`: data may be written back, which often takes less than was
    /// promised for it.
    ///
    /// # Errors
    /// `EDQUOT`.
    pub(crate) fn reserve_quota(
        &self,
        data_bytes: u64,
        nodes: u64,
    ) -> Result<Option<QuotaReservation>> {
        let filesystem = self.filesystem();
        let Some(quotas) = filesystem.writer()?.manager.quotas() else { return Ok(None) };
        let nodesize = u64::from(filesystem.volume().nodesize());
        let len_bytes = data_bytes.saturating_add(nodes * nodesize);
        let reservation = match quotas.reserve(self.id(), len_bytes) {
            Err(EngineError::QuotaExceeded { .. }) => {
                // What fails here is told to whoever syncs that file.
                let _ = filesystem.flush_all();
                quotas.reserve(self.id(), len_bytes)
            }
            reservation => reservation,
        };
        Ok(Some(reservation?))
    }
}

impl Writer {
    /// As [`join`](Self::join), for what inserts up to `items` items in the tree of `subvolume`.
    ///
    /// # Errors
    /// `EDQUOT`, besides.
    pub(crate) fn join_growing(&self, subvolume: &Subvolume, items: u64) -> Result<Handle<'_>> {
        let reservation = subvolume.reserve_quota(0, items)?;
        let mut handle = self.join(subvolume, items, Priority::Normal)?;
        handle.keep_quota(reservation);
        Ok(handle)
    }
}
