//! A model of a spinning disk, for measuring access patterns with a virtual clock.
//!
//! # Invariants
//! - Only calls take time, and only in the model: results do not depend on the machine.
//! - The arm does one thing at a time. A read waits for what the arm has begun, and goes before
//!   readahead that it has not begun.
//! - All data comes from the inner device; the model decides only when.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::bytes::total_len;
use larder_device::{Device, DeviceError};

/// Most readahead requests that wait or are read and unused: beyond this the oldest in disk order
/// is dropped.
const MAX_TRACKED: usize = 4096;

/// The properties of a disk.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// From one track to the next.
    pub shortest_seek: Duration,
    /// From the first track to the last. In between the time grows with the root of the distance.
    pub longest_seek: Duration,
    /// One turn of the platter. Every seek also waits half of one.
    pub rotation: Duration,
    /// Transfer rate while the head stays on course.
    pub bytes_per_second: u64,
}

impl Default for Geometry {
    /// A 7200 rpm desktop disk.
    fn default() -> Self {
        Self {
            shortest_seek: Duration::from_micros(800),
            longest_seek: Duration::from_millis(18),
            rotation: Duration::from_nanos(8_333_333),
            bytes_per_second: 180_000_000,
        }
    }
}

/// Passes calls to another device and counts the time that they would take on a spinning disk.
///
/// One arm serves all calls. Reads and writes advance the caller's clock; readahead is served in
/// the background, in disk order, while the caller waits or [spends](Self::spend) time.
#[derive(Debug)]
pub struct SpinningDisk {
    inner: Arc<dyn Device>,
    geometry: Geometry,
    state: Mutex<State>,
}

/// Times are nanoseconds since the start, places are byte offsets.
#[derive(Debug, Default)]
struct State {
    /// The caller's clock.
    now: u64,
    /// The time when the arm is done.
    arm_free: u64,
    /// The place of the head at that time.
    head: u64,
    seeks: u64,
    /// Readahead not begun: length and time of the request by offset.
    waiting: BTreeMap<u64, (u64, u64)>,
    /// Readahead begun: end and time of completion by offset.
    begun: BTreeMap<u64, (u64, u64)>,
}

impl SpinningDisk {
    /// Models `inner` as a disk, its clock at zero and its head at the start.
    pub fn new(inner: Arc<dyn Device>, geometry: Geometry) -> Self {
        Self { inner, geometry, state: Mutex::default() }
    }

    /// The caller's clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.state.lock().now)
    }

    /// The number of seeks.
    pub fn seeks(&self) -> u64 {
        self.state.lock().seeks
    }

    /// Advances the caller's clock by work that needs no disk.
    pub fn spend(&self, duration: Duration) {
        self.state.lock().now += duration.as_nanos() as u64;
    }

    /// Serves readahead up to the caller's clock.
    fn run_background(&self, state: &mut State) {
        while state.arm_free < state.now {
            // From the head onwards, then from the start of the disk.
            let next = state.waiting.range(state.head..).next().or(state.waiting.iter().next());
            let Some((&offset, &(len_bytes, requested))) = next else { break };
            let start = state.arm_free.max(requested);
            if start >= state.now {
                break;
            }
            state.waiting.remove(&offset);
            let done = self.serve(state, offset, len_bytes, start);
            insert_bounded(&mut state.begun, offset, (offset + len_bytes, done));
        }
    }

    /// Moves the arm at `start`, and returns the time when it is done with the range.
    fn serve(&self, state: &mut State, offset: u64, len_bytes: u64, start: u64) -> u64 {
        let seek = self.seek_nanos(state.head.abs_diff(offset));
        // Passing over a short gap is faster than seeking.
        let pass = offset.checked_sub(state.head).map(|gap| self.transfer_nanos(gap));
        let position = match pass {
            Some(pass) if pass <= seek => pass,
            _ => {
                state.seeks += 1;
                seek
            }
        };
        state.head = offset + len_bytes;
        state.arm_free = start + position + self.transfer_nanos(len_bytes);
        state.arm_free
    }

    fn seek_nanos(&self, distance: u64) -> u64 {
        let Geometry { shortest_seek, longest_seek, rotation, .. } = self.geometry;
        let share = (distance as f64 / self.inner.len_bytes().max(1) as f64).sqrt();
        let travel = longest_seek.saturating_sub(shortest_seek).mul_f64(share);
        (shortest_seek + travel + rotation / 2).as_nanos() as u64
    }

    fn transfer_nanos(&self, len_bytes: u64) -> u64 {
        let nanos = u128::from(len_bytes) * 1_000_000_000;
        (nanos / u128::from(self.geometry.bytes_per_second.max(1))) as u64
    }

    /// Advances the caller's clock by the time of a call on a range.
    fn wait_for(&self, offset: u64, len_bytes: u64) {
        let state = &mut *self.state.lock();
        let start = state.now.max(state.arm_free);
        state.now = self.serve(state, offset, len_bytes, start);
    }

    /// As [`wait_for`](Self::wait_for), for a range that readahead may have read.
    fn wait_for_read(&self, offset: u64, len_bytes: u64) {
        let end = offset + len_bytes;
        {
            let state = &mut *self.state.lock();
            self.run_background(state);
            if let Some((&start, &(begun_end, done))) = state.begun.range(..=offset).next_back()
                && end <= begun_end
            {
                state.now = state.now.max(done);
                if end == begun_end {
                    state.begun.remove(&start);
                }
                return;
            }
            if let Some((&start, &(waiting_len, _))) = state.waiting.range(..=offset).next_back()
                && end <= start + waiting_len
            {
                state.waiting.remove(&start);
                let begin = state.now.max(state.arm_free);
                state.now = self.serve(state, start, waiting_len, begin);
                if end < start + waiting_len {
                    insert_bounded(&mut state.begun, start, (start + waiting_len, state.now));
                }
                return;
            }
        }
        self.wait_for(offset, len_bytes);
    }
}

fn insert_bounded<V>(map: &mut BTreeMap<u64, V>, offset: u64, value: V) {
    map.insert(offset, value);
    if map.len() > MAX_TRACKED {
        map.pop_first();
    }
}

impl Device for SpinningDisk {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.inner.read_at(buf, offset)?;
        self.wait_for_read(offset, buf.len() as u64);
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.inner.write_vectored_at(bufs, offset)?;
        self.wait_for(offset, total_len(bufs));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes());
        let Some(len_bytes) = end.checked_sub(offset).filter(|len_bytes| *len_bytes > 0) else {
            return;
        };
        let state = &mut *self.state.lock();
        self.run_background(state);
        let brought = state.begun.range(..=offset).next_back();
        if brought.is_none_or(|(_, &(begun_end, _))| begun_end < end) {
            insert_bounded(&mut state.waiting, offset, (len_bytes, state.now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::MemoryDevice;

    const BLOCK: u64 = 16 * 1024;

    fn disk() -> SpinningDisk {
        let memory = Arc::new(MemoryDevice::new("memory", 1 << 30));
        SpinningDisk::new(memory, Geometry::default())
    }

    fn read(disk: &SpinningDisk, offset: u64) {
        disk.read_at(&mut [0; BLOCK as usize], offset).unwrap();
    }

    #[test]
    fn sequential_reads_cost_transfer_only() {
        let disk = disk();
        for block in 0..100 {
            read(&disk, block * BLOCK);
        }
        assert_eq!(disk.seeks(), 0);
        assert_eq!(disk.elapsed(), Duration::from_nanos(100 * disk.transfer_nanos(BLOCK)));
    }

    #[test]
    fn scattered_reads_seek() {
        let disk = disk();
        for block in [900_u64, 100, 500] {
            read(&disk, block << 20);
        }
        assert_eq!(disk.seeks(), 3);
        assert!(disk.elapsed() > 3 * (disk.geometry.shortest_seek + disk.geometry.rotation / 2));
    }

    #[test]
    fn readahead_overlaps_with_work_and_sorts() {
        let offsets: Vec<u64> = [700_u64, 300, 500, 100].map(|block| block << 20).to_vec();
        let work = Duration::from_millis(100);
        let plain = disk();
        for &offset in &offsets {
            plain.spend(work);
            read(&plain, offset);
        }
        let ahead = disk();
        for &offset in &offsets {
            ahead.readahead(offset, BLOCK);
        }
        for &offset in &offsets {
            ahead.spend(work);
            read(&ahead, offset);
        }
        assert_eq!(ahead.elapsed(), 4 * work);
        assert!(plain.elapsed() > ahead.elapsed());
    }

    #[test]
    fn readahead_not_begun_is_read_at_once() {
        let disk = disk();
        disk.readahead(900 << 20, BLOCK);
        disk.readahead(100 << 20, BLOCK);
        read(&disk, 900 << 20);
        assert_eq!(disk.seeks(), 1);
        disk.spend(Duration::from_secs(1));
        let before = disk.elapsed();
        read(&disk, 100 << 20);
        assert_eq!((disk.elapsed(), disk.seeks()), (before, 2));
    }
}
