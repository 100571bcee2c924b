//! Buffers of one write.

use std::io::IoSlice;

/// The sum of the buffers' lengths in bytes.
pub(crate) fn total_len(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// The buffers' bytes one after the other.
pub(crate) fn concatenated(bufs: &[IoSlice<'_>]) -> Vec<u8> {
    bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
}
