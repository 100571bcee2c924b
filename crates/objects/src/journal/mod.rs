//! A device of objects with a journal on a disk of this machine: a flush waits for that disk, and
//! the store gets what was flushed afterwards.
//!
//! ```text
//!   write   ─▶ a record in the journal                      read ◀─ the journal, if it is newer
//!   flush   ─▶ a record that ends it, and the disk's flush       ◀─ the device of objects
//!   a thread ─▶ records, in their order, into the device of objects, and its flush
//! ```
//! The disk has two [headers](header), and [records](record) in a ring. Positions in it only grow;
//! a position lies at its rest in the ring.
//!
//! # Invariants
//! - A flush that returned is in the journal, durably, or in the store. A crash leaves the state of
//!   the last flush that returned, or of one that had begun: with the store's state, and then the
//!   records up to the last flush in the journal, in their order.
//! - The store only ever gets states that a flush in the journal has made durable before, while the
//!   journal is in use; nor does the device of objects get more, since it makes states by itself. So
//!   the records lead on from any state that this journal's writers have
//!   made in the store: a record that the store has already changes nothing.
//! - The records are given up after the store has what they say: first the header says so, durably,
//!   and then new ones may take their place.
//! - A journal follows a manifest only if that names one of the journal's own writers, and says that
//!   it has this journal. Each writer is noted in the header before it asks the store to be the
//!   next. So nothing goes on top of what another writer has written, and what is not used stays
//!   in the file.
//! - Records go only on top of a state that they lead on from. Each flush in the store, and the
//!   manifest, says how much of the journal its state has: a chain that the journal must have. So
//!   an older copy of the journal is refused, and so is an older copy of the store.
//! - A flush is durable only if the next process finds the disk where this one did.
//! - Without a journal ([`Way::Through`]) all that a flush waits for is in the store. Before that
//!   begins the header has no records; if the disk cannot say so, the manifest says that the writer
//!   has no journal any more.
//! - Memory does not depend on how much the journal has, except for where it is.
//!
//! Locks, in their order: `way`, `syncing`, `ends`.

mod apply;
mod header;
mod kept;
mod log;
mod map;
mod record;
mod way;

use std::any::Any;
use std::fmt;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_device::{Device, DeviceError, Operation, Trouble, check_call};

use crate::device::ObjectDevice;
use crate::error::ObjectsError;
use crate::head::{self, read_manifest};
use crate::options::{JournalOptions, Options};
use crate::ownership::Right;
use crate::state_name::StateName;
use crate::states::State;
use crate::store::Store;

use apply::Applying;
pub(crate) use kept::{Kept, check_none_is_left, warn_of_what_is_left};
use way::Shared;

/// How long the thread waits for further flushes before the store gets one, if nothing else waits:
/// each flush of the store costs a request.
const PAUSE: Duration = Duration::from_secs(1);

impl JournalOptions {
    fn path_for(&self, uuid: &[u8; 16]) -> PathBuf {
        // The manifest names it, and other programs may have other current directories.
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        if path.is_dir() {
            path.join(format!("{}.journal", uuid::Uuid::from_bytes(*uuid)))
        } else {
            path
        }
    }
}

/// A device whose content lies in objects, open for writing, with a journal on this machine.
pub struct JournaledDevice {
    shared: Arc<Shared>,
    applying: Option<Applying>,
}

impl JournaledDevice {
    /// Opens a device for writing, as [`ObjectDevice::open`] does. What the journal has and the store
    /// lacks follows.
    ///
    /// # Errors
    /// Those of [`ObjectDevice::open`]; [`ObjectsError::Journal`], and [`ObjectsError::Superseded`] if
    /// another writer has written since.
    pub fn open(
        store: Arc<dyn Store>,
        options: &Options,
        journal: &JournalOptions,
    ) -> Result<Self, ObjectsError> {
        let (manifest, _) = read_manifest(&*store)?;
        let mut kept = Kept::open(journal, &manifest.uuid)?;
        kept.forget_if_given_up(&manifest.writer)?;
        let inner = ObjectDevice::open_by(store, options, Right::Continuing(&kept))?;
        Self::begin(inner, kept, PAUSE)
    }

    /// Opens a device with its journal on `disk`, as a program on any machine would. For tests.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_elsewhere(
        store: Arc<dyn Store>,
        options: &Options,
        disk: Arc<dyn Device>,
    ) -> Result<Self, ObjectsError> {
        let (manifest, _) = read_manifest(&*store)?;
        let mut kept = Kept::on(disk, &manifest.uuid)?;
        kept.forget_if_given_up(&manifest.writer)?;
        let inner = ObjectDevice::open_with(store, options, None, Right::Continuing(&kept))?;
        Self::begin(inner, kept, Duration::ZERO)
    }

    fn begin(inner: ObjectDevice, kept: Kept, pause: Duration) -> Result<Self, ObjectsError> {
        if kept.is_dirty() {
            tracing::warn!(
                "{}: the journal {} has {} flushes that the store may lack; they follow",
                inner.name(),
                kept.name(),
                kept.flushes
            );
        }
        let shared = Arc::new(Shared::new(inner, kept, pause)?);
        let applying = Some(Applying::begin(&shared));
        Ok(Self { shared, applying })
    }

    /// Waits until the store has all that was flushed. For tests.
    ///
    /// # Errors
    /// Those of the store.
    #[doc(hidden)]
    pub fn wait_for_store(&self) -> Result<(), DeviceError> {
        self.shared.wait_for_store()
    }
}

impl Device for JournaledDevice {
    fn name(&self) -> &str {
        self.shared.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.shared.inner.len_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Read, offset, buf.len() as u64)?;
        self.shared.read(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        check_call(self, Operation::Write, offset, len_bytes)?;
        self.shared.write(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.shared.flush()
    }

    fn flushes_in_one_step(&self) -> bool {
        true
    }

    fn wants_discards(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<Trouble> {
        if self.shared.is_waited_for() { self.shared.inner.trouble() } else { None }
    }

    fn particulars(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.shared.inner.particulars()
    }

    fn doubt(&self, offset: u64, len_bytes: u64) -> bool {
        self.shared.inner.doubt(offset, len_bytes)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        self.shared.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.shared.inner.readahead(offset, len_bytes);
    }
}

impl Drop for JournaledDevice {
    fn drop(&mut self) {
        // Whoever wrote last has seen the error if this one fails.
        let _ = self.shared.flush();
        self.shared.close();
        // The thread ends when the store has everything, or cannot get it.
        self.applying = None;
        self.shared.leave();
    }
}

/// Gives the clone of a device in `store` what the journal at `path` has, and returns how many flushes
/// that is. `origin` is the device whose journal it is; `clone` makes the clone from the state that
/// it is given.
///
/// # Errors
/// [`ObjectsError::Journal`], those of `clone`, and those of the stores.
pub fn add_journal(
    path: &Path,
    origin: &dyn Store,
    store: Arc<dyn Store>,
    options: &Options,
    clone: impl FnOnce(&StateName) -> Result<State, ObjectsError>,
) -> Result<(State, u64), ObjectsError> {
    let kept = Kept::look(path)?;
    kept.check_origin(&head::read(origin)?.uuid)?;
    let state = clone(&StateName::Number(kept.state()))?;
    let device = ObjectDevice::open(store, options)?;
    kept.add_to(&device)?;
    Ok((state, kept.flushes))
}

impl fmt::Debug for JournaledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournaledDevice").field("inner", &self.shared.inner).finish_non_exhaustive()
    }
}
