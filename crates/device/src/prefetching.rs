//! Readahead for devices that have none, such as a file that is read around the page cache.
//!
//! # Invariants
//! - Finished and running reads never exceed the limit; a hint that would exceed it is dropped, or
//!   replaces the oldest ranges that no thread has used.
//! - The inner device is not open for writing, so no copy becomes stale.
//! - A range that is being read is read once: a thread that needs a part of it waits.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::{Device, DeviceError, Trouble};

/// Reads announced ranges in the background, and returns them on request.
#[derive(Debug)]
pub struct PrefetchingDevice {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Device>,
    limit_bytes: u64,
    state: Mutex<State>,
    /// There is work, or the device is dropped.
    wanted: Condvar,
    /// A range was read.
    brought: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By offset.
    ranges: BTreeMap<u64, Prefetched>,
    /// Offsets of ranges that no worker has begun.
    queue: VecDeque<u64>,
    /// Offsets in the order of their hints.
    ages: VecDeque<u64>,
    held_bytes: u64,
    is_closing: bool,
}

#[derive(Debug)]
struct Prefetched {
    len_bytes: u64,
    /// `None` while it is being read.
    data: Option<Arc<Vec<u8>>>,
}

impl PrefetchingDevice {
    /// Reads ahead from `inner` with `threads` threads, holding at most `limit_bytes`.
    ///
    /// # Panics
    /// If `inner` is open for writing.
    pub fn new(inner: Arc<dyn Device>, threads: usize, limit_bytes: u64) -> Self {
        assert!(!inner.is_writable(), "prefetched data would become stale");
        let state = Mutex::default();
        let (wanted, brought) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { inner, limit_bytes, state, wanted, brought });
        let start = |_| {
            let shared = shared.clone();
            thread::spawn(move || shared.work())
        };
        Self { workers: (0..threads.max(1)).map(start).collect(), shared }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.is_closing {
            let Some(offset) = state.queue.pop_front() else {
                self.wanted.wait(&mut state);
                continue;
            };
            let Some(range) = state.ranges.get(&offset) else { continue };
            let mut data = vec![0; range.len_bytes as usize];
            parking_lot::MutexGuard::unlocked(&mut state, || {
                // The thread that needs the range will meet the error.
                let _ = self.inner.read_at(&mut data, offset).inspect_err(|_| data.clear());
            });
            if data.is_empty() {
                state.forget(offset);
            } else if let Some(range) = state.ranges.get_mut(&offset) {
                range.data = Some(Arc::new(data));
            }
            self.brought.notify_all();
        }
    }

    /// The range that contains `offset..end`, once it is read, and its start.
    fn take(&self, offset: u64, end: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let mut state = self.state.lock();
        loop {
            let (&start, range) = state.ranges.range(..=offset).next_back()?;
            let range_end = start + range.len_bytes;
            if range_end < end {
                return None;
            }
            if let Some(data) = range.data.clone() {
                if range_end == end {
                    state.forget(start);
                }
                return Some((start, data));
            }
            self.brought.wait(&mut state);
        }
    }
}

impl State {
    fn forget(&mut self, offset: u64) {
        if let Some(range) = self.ranges.remove(&offset) {
            self.held_bytes -= range.len_bytes;
            self.ages.retain(|age| *age != offset);
        }
    }

    /// Makes room for `len_bytes` more below `limit_bytes`, if dropping unused ranges suffices.
    fn make_room(&mut self, len_bytes: u64, limit_bytes: u64) -> bool {
        while self.held_bytes + len_bytes > limit_bytes {
            let oldest = self.ages.front().copied();
            let Some(oldest) = oldest.filter(|oldest| self.ranges[oldest].data.is_some()) else {
                return false;
            };
            self.forget(oldest);
        }
        true
    }

    fn overlaps(&self, offset: u64, end: u64) -> bool {
        let before = self.ranges.range(..end).next_back();
        before.is_some_and(|(start, range)| start + range.len_bytes > offset)
    }
}

impl Drop for PrefetchingDevice {
    fn drop(&mut self) {
        self.shared.state.lock().is_closing = true;
        self.shared.wanted.notify_all();
        for worker in self.workers.drain(..) {
            // The thread returns nothing; a panic in it was printed.
            let _ = worker.join();
        }
    }
}

impl Device for PrefetchingDevice {
    fn name(&self) -> &str {
        self.shared.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.shared.inner.len_bytes()
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let end = offset.saturating_add(buf.len() as u64);
        let Some((start, data)) = self.shared.take(offset, end) else {
            return self.shared.inner.read_at(buf, offset);
        };
        let from = (offset - start) as usize;
        buf.copy_from_slice(&data[from..from + buf.len()]);
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.shared.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.shared.inner.flush()
    }

    fn flushes_in_one_step(&self) -> bool {
        self.shared.inner.flushes_in_one_step()
    }

    fn wants_discards(&self) -> bool {
        self.shared.inner.wants_discards()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.shared.inner.trouble()
    }

    fn particulars(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.shared.inner.particulars()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.shared.inner.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes());
        let Some(len_bytes) = end.checked_sub(offset).filter(|len_bytes| *len_bytes > 0) else {
            return;
        };
        let state = &mut *self.shared.state.lock();
        if state.overlaps(offset, end) || !state.make_room(len_bytes, self.shared.limit_bytes) {
            return;
        }
        state.ranges.insert(offset, Prefetched { len_bytes, data: None });
        state.queue.push_back(offset);
        state.ages.push_back(offset);
        state.held_bytes += len_bytes;
        self.shared.wanted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::{Access, FileDevice};

    /// Counts the reads of a file.
    #[derive(Debug)]
    struct Counting {
        file: FileDevice,
        reads: AtomicU64,
    }

    impl Counting {
        fn reads(&self) -> u64 {
            self.reads.load(Relaxed)
        }
    }

    impl Device for Counting {
        fn name(&self) -> &str {
            self.file.name()
        }

        fn len_bytes(&self) -> u64 {
            self.file.len_bytes()
        }

        fn is_writable(&self) -> bool {
            false
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
            self.reads.fetch_add(1, Relaxed);
            self.file.read_at(buf, offset)
        }

        fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
            self.file.write_vectored_at(bufs, offset)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.file.flush()
        }

        fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
            self.file.discard(offset, len_bytes)
        }

        fn readahead(&self, _: u64, _: u64) {}
    }

    /// A file of 1 MiB in which each 4 KiB hold their number, counted beneath a prefetching device.
    fn numbered(limit_bytes: u64) -> (PrefetchingDevice, Arc<Counting>, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..256_u32).flat_map(|number| [number as u8; 4096]).collect();
        std::fs::write(file.path(), content).unwrap();
        let inner = FileDevice::open(file.path(), Access::ReadOnly).unwrap();
        let counting = Arc::new(Counting { file: inner, reads: AtomicU64::new(0) });
        (PrefetchingDevice::new(counting.clone(), 2, limit_bytes), counting, file)
    }

    fn read(device: &PrefetchingDevice, block: u64) -> u8 {
        let mut buf = [0; 4096];
        device.read_at(&mut buf, block * 4096).unwrap();
        assert!(buf.iter().all(|byte| *byte == buf[0]));
        buf[0]
    }

    #[test]
    fn prefetched_ranges_are_not_read_again() {
        let (device, counting, _file) = numbered(1 << 20);
        device.readahead(8 * 4096, 16 * 4096);
        for block in 8..24 {
            assert_eq!(read(&device, block), block as u8);
        }
        assert_eq!(counting.reads(), 1);
        assert_eq!(read(&device, 8), 8, "used ranges are read again");
        assert_eq!(counting.reads(), 2);
        assert_eq!(device.shared.state.lock().held_bytes, 0);
    }

    #[test]
    fn reads_beside_and_across_go_to_the_device() {
        let (device, counting, _file) = numbered(1 << 20);
        device.readahead(4 * 4096, 4 * 4096);
        assert_eq!(read(&device, 3), 3);
        let mut buf = [0; 8192];
        device.read_at(&mut buf, 7 * 4096).unwrap();
        assert_eq!((buf[0], buf[4096]), (7, 8));
        assert_eq!(read(&device, 5), 5);
        assert_eq!(counting.reads(), 3);
    }

    #[test]
    fn the_limit_holds_and_the_oldest_range_is_dropped() {
        let (device, _, _file) = numbered(16 * 4096);
        for block in (0..256).step_by(4) {
            device.readahead(block * 4096, 4 * 4096);
            read(&device, block);
            assert!(device.shared.state.lock().held_bytes <= 16 * 4096);
        }
        device.readahead(0, 1 << 20);
        assert!(
            device.shared.state.lock().held_bytes <= 16 * 4096,
            "a hint beyond the limit is ignored"
        );
        device.readahead(u64::MAX - 4096, 1 << 20);
        assert_eq!(read(&device, 255), 255);
    }

    #[test]
    fn threads_share_running_reads() {
        let (device, counting, _file) = numbered(1 << 20);
        device.readahead(0, 1 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    for block in (thread..255).step_by(4) {
                        assert_eq!(read(device, block), block as u8);
                    }
                });
            }
        });
        assert_eq!(counting.reads(), 1);
    }
}
