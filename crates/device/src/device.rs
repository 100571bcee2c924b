//! The [`Device`] trait.

use std::any::Any;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use crate::DeviceError;

/// A fixed-length array of bytes that many threads read and write at once.
///
/// Offsets and lengths are in bytes. Concurrent calls on disjoint ranges do not affect each other;
/// what a read sees of an overlapping concurrent write is unspecified.
pub trait Device: Send + Sync + fmt::Debug {
    /// The device's name in errors: its path, or a name given at construction.
    fn name(&self) -> &str;

    /// Length in bytes.
    fn len_bytes(&self) -> u64;

    /// Whether writes, discards and flushes are allowed.
    fn is_writable(&self) -> bool;

    /// Fills `buf` from `offset`. A range that passes the end is [`DeviceError::PastEnd`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError>;

    /// Writes all of `buf` at `offset`. After an error any part of the range may have changed.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// Writes `bufs` one after the other from `offset`, as [`write_at`](Self::write_at) of their
    /// concatenation would.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError>;

    /// Returns once every write that returned before this call is durable.
    ///
    /// After one failed flush every later one fails too: the content of the medium is then unknown,
    /// and no later success may suggest otherwise.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Whether all writes between two flushes become durable in one step, or none does. Their order
    /// needs no flush then.
    fn flushes_in_one_step(&self) -> bool {
        false
    }

    /// Whether commits discard freed space unless the user says otherwise: the device keeps and
    /// pays for all that is not discarded.
    fn wants_discards(&self) -> bool {
        false
    }

    /// Why requests of the device wait at this time, if any does: a device behind a network repeats
    /// them for as long as they may succeed.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// What there is to know of a device of its kind besides: a caller that knows the kind knows the
    /// type.
    fn particulars(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// A device with the newest state of what this one shows, if that is another one by now. This one
    /// goes on to show its own.
    fn newer(&self) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        Ok(None)
    }

    /// Tells the device that what it read from the range fails a checksum of the caller. Returns
    /// whether another read may give something else: a device that keeps copies forgets them.
    fn doubt(&self, _offset: u64, _len_bytes: u64) -> bool {
        false
    }

    /// Tells the device that the range's content is no longer needed; reading it gives unspecified
    /// bytes.
    ///
    /// A device that cannot discard succeeds without doing anything, and one that can only discard
    /// whole units leaves the edges alone.
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError>;

    /// Tells the device that the range will be read soon. Never fails, and may do nothing.
    fn readahead(&self, offset: u64, len_bytes: u64);
}

/// Why requests of a device wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The last error.
    pub why: String,
    /// There is no room for what is written.
    pub is_full: bool,
}

/// The sum of the buffers' lengths in bytes.
pub(crate) fn total_len(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
