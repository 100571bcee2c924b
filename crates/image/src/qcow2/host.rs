//! The files that an image consists of, with the order in which writes become durable.
//!
//! A cluster of the file is given out by its count of references, in a *count block*, and used by
//! an entry of another table. If an entry came before the count, a cluster could be given out twice
//! after a power cut, or after this process was killed. The format driver keeps that order between
//! count blocks and the tables at the bottom. Here is the rest:
//!
//! - No count block is written after something else, and nothing else after a count block, before
//!   what was written is durable. That makes one or two more flushes of the file each time the
//!   tables are written back.
//! - Entries of the two tables at the top are held back: those that lead to count blocks until
//!   these are durable, those that lead to other tables until everything else is.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use imago::file::File as Plain;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use imago::{Storage, StorageOpenOptions};
use larder_device::{Device, FileDevice};
use larder_platform::{FileExt, FileTypeExt};

use super::counts::{self, Tables};

/// A file of an image.
#[derive(Debug)]
pub(super) struct Host {
    file: Plain,
    /// For the image file, if it is open for writing.
    order: Option<Mutex<Order>>,
}

/// What was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Counts,
    Others,
}

/// Bytes that wait, by offset.
type Waiting = BTreeMap<u64, Vec<u8>>;

/// The order of writes.
#[derive(Debug)]
struct Order {
    /// The image file. It fails to flush after it failed once.
    device: Arc<FileDevice>,
    file: File,
    cluster_bytes: u64,
    /// The clusters with counts.
    count_blocks: HashSet<u64>,
    /// Where the table is that leads to count blocks, and its entries that wait.
    counts_at: Range<u64>,
    counts: Waiting,
    /// The same for the table that leads to other tables.
    active_at: Range<u64>,
    active: Waiting,
    /// What was written after the last flush of the file.
    since_flush: Option<Written>,
}

impl Order {
    fn new(device: Arc<FileDevice>) -> io::Result<Self> {
        let file = device.file()?;
        let mut order = Self {
            device,
            file,
            cluster_bytes: 0,
            count_blocks: HashSet::new(),
            counts_at: 0..0,
            counts: Waiting::new(),
            active_at: 0..0,
            active: Waiting::new(),
            since_flush: None,
        };
        order.find_tables()?;
        Ok(order)
    }

    /// Reads anew where the tables are.
    fn find_tables(&mut self) -> io::Result<()> {
        let tables = Tables::read(&self.file)?;
        self.cluster_bytes = tables.cluster_bytes;
        let blocks = tables.count_blocks().map(|block| block / tables.cluster_bytes);
        self.count_blocks = blocks.collect();
        let range = |(at, len_bytes): (u64, u64)| at..at.saturating_add(len_bytes);
        (self.counts_at, self.active_at) = (range(tables.counts_at), range(tables.active_at));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush().map_err(io::Error::other)?;
        self.since_flush = None;
        Ok(())
    }

    /// Whether a write of `bytes` to `offset` has to wait, which it does then.
    fn hold_back(&mut self, bufs: &IoVector<'_>, offset: u64) -> bool {
        let is_counts = self.counts_at.contains(&offset);
        if !is_counts && !self.active_at.contains(&offset) {
            return false;
        }
        let mut bytes = vec![0; bufs.len() as usize];
        bufs.copy_into_slice(&mut bytes);
        if is_counts {
            let entries = counts::offsets(&bytes);
            self.count_blocks.extend(entries.map(|block| block / self.cluster_bytes));
            self.counts.insert(offset, bytes);
        } else {
            self.active.insert(offset, bytes);
        }
        true
    }

    /// Makes what was written durable if the next write is at `offset`.
    fn before_write(&mut self, offset: u64) -> io::Result<()> {
        let is_counts = self.count_blocks.contains(&(offset / self.cluster_bytes));
        let next = if is_counts { Written::Counts } else { Written::Others };
        if self.since_flush.is_some_and(|before| before != next) {
            self.flush()?;
            if next == Written::Others && !self.counts.is_empty() {
                self.write_counts()?;
                self.flush()?;
            }
        }
        self.since_flush = Some(next);
        Ok(())
    }

    fn write_counts(&mut self) -> io::Result<()> {
        while let Some((offset, bytes)) = self.counts.first_key_value() {
            self.file.write_all_at(bytes, *offset)?;
            self.counts.pop_first();
        }
        Ok(())
    }

    /// Makes everything durable.
    fn sync(&mut self) -> io::Result<()> {
        if !self.counts.is_empty() {
            self.flush()?;
            self.write_counts()?;
        }
        self.flush()?;
        if self.active.is_empty() {
            return Ok(());
        }
        while let Some((offset, bytes)) = self.active.first_key_value() {
            self.file.write_all_at(bytes, *offset)?;
            self.active.pop_first();
        }
        self.flush()
    }
}

impl Host {
    /// The image file itself.
    pub(super) fn of_file(file: &Arc<FileDevice>, path: &Path) -> io::Result<Self> {
        let is_writable = file.is_writable();
        let options = StorageOpenOptions::new().filename(path.canonicalize()?).write(is_writable);
        let order = if is_writable {
            counts::check(&file.file()?)?;
            Some(Mutex::new(Order::new(Arc::clone(file))?))
        } else {
            None
        };
        Ok(Self { file: Plain::from_open_file(file.file()?, options)?, order })
    }

    fn order(&self) -> Option<MutexGuard<'_, Order>> {
        self.order.as_ref().map(|order| order.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the order for a write at `offset`.
    fn before_write(&self, offset: u64) -> io::Result<()> {
        self.order().map_or(Ok(()), |mut order| order.before_write(offset))
    }
}

impl Storage for Host {
    /// Opens a backing file.
    fn open(options: StorageOpenOptions) -> io::Result<Self> {
        // Opening a pipe would wait.
        if let Some(path) = options.get_filename() {
            let file_type = path.metadata()?.file_type();
            if !file_type.is_file() && !file_type.is_block_device() {
                let problem = "neither a regular file nor a block device";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
        }
        Ok(Self { file: Plain::open(options)?, order: None })
    }

    fn mem_align(&self) -> usize {
        self.file.mem_align()
    }

    fn req_align(&self) -> usize {
        self.file.req_align()
    }

    fn zero_align(&self) -> usize {
        self.file.zero_align()
    }

    fn discard_align(&self) -> usize {
        self.file.discard_align()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn resolve_relative_path<P: AsRef<Path>>(&self, relative: P) -> io::Result<PathBuf> {
        self.file.resolve_relative_path(relative)
    }

    fn get_filename(&self) -> Option<PathBuf> {
        self.file.get_filename()
    }

    unsafe fn pure_readv(&self, bufs: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        // SAFETY: the caller promises what the file asks for, here and below.
        unsafe { self.file.pure_readv(bufs, offset) }
    }

    unsafe fn pure_writev(&self, bufs: IoVector<'_>, offset: u64) -> io::Result<()> {
        if let Some(mut order) = self.order() {
            if order.hold_back(&bufs, offset) {
                return Ok(());
            }
            order.before_write(offset)?;
        }
        // SAFETY: as above.
        unsafe { self.file.pure_writev(bufs, offset) }?;
        match self.order() {
            // The header says where the tables are. A new table contains what waited for the old.
            Some(mut order) if offset < counts::HEADER_BYTES => {
                order.counts.clear();
                order.find_tables()
            }
            _ => Ok(()),
        }
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.before_write(offset)?;
        // SAFETY: as above.
        unsafe { self.file.pure_write_zeroes(offset, len_bytes) }
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.before_write(offset)?;
        // SAFETY: as above.
        unsafe { self.file.pure_write_allocated_zeroes(offset, len_bytes) }
    }

    unsafe fn pure_discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.before_write(offset)?;
        // SAFETY: as above.
        unsafe { self.file.pure_discard(offset, len_bytes) }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    fn sync(&self) -> io::Result<()> {
        self.order().map_or_else(|| self.file.sync(), |mut order| order.sync())
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        // SAFETY: as above.
        unsafe { self.file.invalidate_cache() }
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        self.file.get_storage_helper()
    }

    fn resize(&self, len_bytes: u64, mode: PreallocateMode) -> io::Result<()> {
        self.file.resize(len_bytes, mode)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use larder_device::Access;

    use super::*;

    const CLUSTER: u64 = 512;

    /// An image of four clusters: the header, the table that leads to count blocks, the one that
    /// leads to other tables, a count block.
    fn order(path: &Path) -> Order {
        let mut bytes = vec![0; 4 * CLUSTER as usize];
        bytes[4..8].copy_from_slice(&3_u32.to_be_bytes());
        bytes[20..24].copy_from_slice(&9_u32.to_be_bytes());
        bytes[36..40].copy_from_slice(&1_u32.to_be_bytes());
        bytes[40..48].copy_from_slice(&(2 * CLUSTER).to_be_bytes());
        bytes[48..56].copy_from_slice(&CLUSTER.to_be_bytes());
        bytes[56..60].copy_from_slice(&1_u32.to_be_bytes());
        bytes[96..100].copy_from_slice(&4_u32.to_be_bytes());
        bytes[512..520].copy_from_slice(&(3 * CLUSTER).to_be_bytes());
        std::fs::write(path, &bytes).unwrap();
        Order::new(Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap())).unwrap()
    }

    #[test]
    fn entries_at_the_top_wait_for_what_they_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut order = order(&path);
        let entry = |at: u64| {
            let mut bytes = [0; 8];
            order_file(&path).read_exact_at(&mut bytes, at).unwrap();
            u64::from_be_bytes(bytes)
        };
        let hold = |order: &mut Order, at: u64, value: u64| {
            let bytes = value.to_be_bytes();
            order.hold_back(&IoVector::from(&bytes[..]), at)
        };
        let (counts, active) = (CLUSTER + 8, 2 * CLUSTER);
        assert!(hold(&mut order, counts, 5 * CLUSTER) && hold(&mut order, active, 6 * CLUSTER));
        assert!(!hold(&mut order, 4 * CLUSTER, 1));
        assert_eq!((entry(counts), entry(active)), (0, 0));
        // A new count block, and what it allows.
        order.before_write(5 * CLUSTER).unwrap();
        assert_eq!(order.since_flush, Some(Written::Counts));
        assert_eq!(entry(counts), 0);
        order.before_write(6 * CLUSTER).unwrap();
        assert_eq!(order.since_flush, Some(Written::Others));
        assert_eq!((entry(counts), entry(active)), (5 * CLUSTER, 0));
        order.sync().unwrap();
        assert_eq!((entry(active), order.since_flush), (6 * CLUSTER, None));
    }

    fn order_file(path: &Path) -> File {
        File::open(path).unwrap()
    }
}
