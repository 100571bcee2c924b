//! Compressed extents, decompressed, and a few of them kept: who reads a file in small pieces would
//! otherwise decompress each extent many times.
//!
//! # Invariants
//! - An extent is known by its address and the transaction that wrote it: an address that is used anew
//!   is another extent.
//! - At most [`KEPT_EXTENTS`] are kept, each of at most 128 KiB.
//! - The lock is held for looking and putting only, never while reading or decompressing.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::Logical;
use larder_format::compression::{Algorithm, ExtentKind, decompress};
use parking_lot::Mutex;

use crate::error::DataError;
use crate::file::extent::DiskExtent;
use crate::file::read::Verify;
use crate::filesystem::handle::Filesystem;

/// At 128 KiB each these are 8 MiB.
const KEPT_EXTENTS: usize = 64;

thread_local! {
    /// Where a thread reads compressed data into: at most 128 KiB.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What was decompressed last.
#[derive(Debug, Default)]
pub(crate) struct DecompressedExtents {
    /// The one used last is at the back.
    kept: Mutex<VecDeque<Kept>>,
    hits: AtomicU64,
    decompressions: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    identity: Identity,
    data: Arc<[u8]>,
}

/// An extent, and how the file extent item says it is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    logical: Logical,
    generation: u64,
    ram_bytes: u64,
    has_checksums: bool,
}

impl DecompressedExtents {
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn decompressions(&self) -> u64 {
        self.decompressions.load(Relaxed)
    }

    fn get(&self, identity: Identity) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().rposition(|kept| kept.identity == identity)?;
        let found = kept.remove(at)?;
        let data = found.data.clone();
        kept.push_back(found);
        self.hits.fetch_add(1, Relaxed);
        Some(data)
    }

    fn put(&self, identity: Identity, data: Arc<[u8]>) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_EXTENTS {
            kept.pop_front();
        }
        kept.push_back(Kept { identity, data });
    }
}

impl Filesystem {
    /// Reads from `within` bytes into a compressed extent, decompressed.
    pub(super) fn read_compressed(
        &self,
        extent: &DiskExtent,
        algorithm: Algorithm,
        within: u64,
        has_checksums: bool,
        buf: &mut [u8],
    ) -> Result<(), DataError> {
        let is_whole = within == 0 && buf.len() as u64 == extent.ram_bytes;
        if is_whole {
            return self.decompress_extent(extent, algorithm, has_checksums, buf);
        }
        let identity = Identity {
            logical: extent.logical,
            generation: extent.generation,
            ram_bytes: extent.ram_bytes,
            has_checksums,
        };
        let data = if let Some(data) = self.decompressed().get(identity) {
            data
        } else {
            let mut data: Arc<[u8]> = std::iter::repeat_n(0, extent.ram_bytes as usize).collect();
            let unshared = Arc::get_mut(&mut data).expect("nobody else has it yet");
            self.decompress_extent(extent, algorithm, has_checksums, unshared)?;
            self.decompressed().put(identity, data.clone());
            data
        };
        buf.copy_from_slice(&data[within as usize..][..buf.len()]);
        Ok(())
    }

    fn decompress_extent(
        &self,
        extent: &DiskExtent,
        algorithm: Algorithm,
        has_checksums: bool,
        output: &mut [u8],
    ) -> Result<(), DataError> {
        self.decompressed().decompressions.fetch_add(1, Relaxed);
        STORED.with_borrow_mut(|stored| {
            stored.resize(extent.disk_bytes as usize, 0);
            self.read_sectors(extent.logical, stored, Verify::searched_if(has_checksums))?;
            let sectorsize = self.volume().sectorsize();
            decompress(algorithm, stored, output, sectorsize, ExtentKind::Regular)?;
            Ok(())
        })
    }
}
