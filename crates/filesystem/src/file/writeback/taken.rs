//! Data of a file in memory, on its way from dirty to written.

use std::sync::Arc;

use larder_format::item::InodeFlags;

use crate::file::writeback::dirty::DirtyData;
use crate::file::writeback::reservation::DataReservation;
use crate::inode::live::InodeState;

/// Dirty data of a file on its way to the devices, and what the file was like when it set out.
pub(crate) struct Taken {
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) size_bytes: u64,
    /// What the tree has from there on is cut off.
    pub(crate) cut: Option<u64>,
    pub(crate) flags: InodeFlags,
    pub(crate) reservation: Option<DataReservation>,
}

impl InodeState {
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.writing.is_none() && self.cut.is_none()
    }

    /// Takes the dirty data out, to be written back. It is read from `writing` until the trees have it.
    pub(crate) fn take(&mut self) -> Taken {
        let dirty = Arc::new(std::mem::take(&mut self.dirty));
        debug_assert!(self.writing.is_none(), "one at a time writes back");
        self.writing = Some(dirty.clone());
        Taken {
            dirty,
            size_bytes: self.size_bytes,
            cut: self.cut,
            flags: self.item.flags(),
            reservation: self.reservation.take(),
        }
    }

    /// Makes dirty again what could not be written.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        self.writing = None;
        let older = Arc::into_inner(taken.dirty).expect("it is shared with the state only");
        self.dirty.add_older(older);
        if let Some(reservation) = taken.reservation {
            self.absorb(reservation);
        }
    }

    /// The tree has what was taken, of a file of this size then.
    pub(crate) fn written_back(&mut self, generation: u64, nbytes: u64, size_bytes: u64) {
        self.writing = None;
        self.cut = None;
        self.item.nbytes = nbytes.into();
        self.item.size = size_bytes.into();
        self.item.transid = generation.into();
        self.item.sequence += 1;
    }

    /// Forgets what is not written back.
    pub(crate) fn clean(&mut self) {
        self.dirty = DirtyData::default();
        self.cut = None;
        self.reservation = None;
    }
}
