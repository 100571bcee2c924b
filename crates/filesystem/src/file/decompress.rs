//! Reading compressed extents.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::compression::{Algorithm, ExtentKind, decompress};

use crate::cache::decompressed::Identity;
use crate::core::shared::Core;
use crate::error::DataError;
use crate::file::read::Verify;
use crate::item::extent::DiskExtent;

thread_local! {
    /// A thread's buffer for compressed data: at most 128 KiB.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Core {
    /// Reads from `within` bytes into a compressed extent, decompressed.
    pub(crate) fn read_compressed(
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
        let moves = self.decompressed().moves();
        let data = if let Some(data) = self.decompressed().get(identity) {
            data
        } else {
            let mut data: Arc<[u8]> = std::iter::repeat_n(0, extent.ram_bytes as usize).collect();
            let unshared = Arc::get_mut(&mut data).expect("no other thread has it yet");
            self.decompress_extent(extent, algorithm, has_checksums, unshared)?;
            self.decompressed().put(identity, data.clone(), moves);
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
