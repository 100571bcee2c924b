//! Devices whose every change is recorded, so that the state after a power cut at any point can be
//! rebuilt.
//!
//! # Invariants
//! - The entries of all devices of a recording are in one order, and a change is visible on its
//!   device when and only when its entry is in the recording.
//! - An entry never changes; a position, once returned, means the same state forever.
//! - After a power cut, a device guarantees all that its last flush covered. Every later change may
//!   be there, or not, or in part, independently of the others.

use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bytes::{concatenated, total_len};
use larder_device::{Device, DeviceError, MemoryDevice, Operation, check_call};

/// The unit that a device writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// The changes of one or more devices, in the order in which they happened. Clones share them.
///
/// It holds every byte written: a recording is as large as its workload.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// The content of each device when it was attached.
    bases: Vec<MemoryDevice>,
    entries: Vec<Entry>,
}

/// One change or flush of a recorded device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The device's number, counted from 0 in the order of [`Recording::attach`].
    pub device: usize,
    /// The event.
    pub event: Event,
}

/// An event on a recorded device. Offsets and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write.
    Write {
        /// Where it starts.
        offset: u64,
        /// Its data.
        data: Arc<[u8]>,
    },
    /// A discard.
    Discard {
        /// Where it starts.
        offset: u64,
        /// Its length.
        len_bytes: u64,
    },
    /// A flush: all earlier changes of the same device are durable.
    Flush,
}

/// The fate of one unflushed change in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing of it is there.
    Lost,
    /// All of it is there.
    Whole,
    /// Its first `sectors` sectors of 512 bytes are there, counted from its start.
    Torn {
        /// Their number; more than it has means all.
        sectors: u64,
    },
}

impl Recording {
    /// An empty recording.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device that starts with the content of `base` and records its events.
    pub fn attach(&self, base: &MemoryDevice) -> RecordingDevice {
        let mut log = self.log.lock();
        log.bases.push(base.snapshot());
        let number = log.bases.len() - 1;
        RecordingDevice { number, live: base.snapshot(), recording: self.clone() }
    }

    /// The number of entries. As a position it means the state after all of them.
    pub fn position(&self) -> usize {
        self.log.lock().entries.len()
    }

    /// Starts again with the recording's devices before its first entry.
    pub fn replay(&self) -> Replay {
        let durable: Vec<_> = self.log.lock().bases.iter().map(MemoryDevice::snapshot).collect();
        Replay { recording: self.clone(), durable, unflushed: Vec::new(), position: 0 }
    }
}

/// A device in memory whose changes go to a [`Recording`].
#[derive(Debug)]
pub struct RecordingDevice {
    number: usize,
    live: MemoryDevice,
    recording: Recording,
}

impl RecordingDevice {
    /// Applies the event to the live device and records it, as one step.
    fn record(&self, event: Event) -> Result<(), DeviceError> {
        let mut log = self.recording.log.lock();
        event.apply(&self.live, Survival::Whole)?;
        log.entries.push(Entry { device: self.number, event });
        Ok(())
    }
}

impl Device for RecordingDevice {
    fn name(&self) -> &str {
        self.live.name()
    }

    fn len_bytes(&self) -> u64 {
        self.live.len_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.live.read_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Write, offset, total_len(bufs))?;
        self.record(Event::Write { offset, data: concatenated(bufs).into() })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.record(Event::Flush)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.record(Event::Discard { offset, len_bytes })
    }

    fn readahead(&self, _offset: u64, _len_bytes: u64) {}
}

impl Event {
    /// Applies the surviving part of the event to `device`.
    fn apply(&self, device: &MemoryDevice, survival: Survival) -> Result<(), DeviceError> {
        let surviving_bytes = match survival {
            Survival::Lost => 0,
            Survival::Whole => u64::MAX,
            Survival::Torn { sectors } => sectors.saturating_mul(SECTOR_BYTES),
        };
        match self {
            Self::Write { offset, data } => {
                let len = surviving_bytes.min(data.len() as u64) as usize;
                device.write_at(&data[..len], *offset)
            }
            Self::Discard { offset, len_bytes } => {
                device.discard(*offset, surviving_bytes.min(*len_bytes))
            }
            Self::Flush => Ok(()),
        }
    }
}

/// A walk along a [`Recording`] that knows at each position which states a power cut there may
/// leave.
///
/// ```
/// # use larder_device::{Device, MemoryDevice};
/// # use larder_test_devices::{Recording, Survival};
/// let recording = Recording::new();
/// let device = recording.attach(&MemoryDevice::new("disk", 1 << 20));
/// device.write_at(b"flushed", 0)?;
/// device.flush()?;
/// device.write_at(b"pending", 0)?;
///
/// let mut replay = recording.replay();
/// replay.advance_to(recording.position());
/// let images = replay.power_cut(|_, _| Survival::Lost);
/// let mut content = [0; 7];
/// images[0].read_at(&mut content, 0)?;
/// assert_eq!(&content, b"flushed");
/// # Ok::<(), larder_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    recording: Recording,
    /// The certain content of each device.
    durable: Vec<MemoryDevice>,
    /// The changes that no flush of their device covers yet, with their positions, in order.
    unflushed: Vec<(usize, Entry)>,
    position: usize,
}

impl Replay {
    /// How many entries have been replayed.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Replays one entry and returns it; `None` at the end of the recording.
    pub fn step(&mut self) -> Option<Entry> {
        let entry = self.recording.log.lock().entries.get(self.position)?.clone();
        match entry.event {
            Event::Flush => {
                let covered =
                    self.unflushed.extract_if(.., |(_, past)| past.device == entry.device);
                for (_, change) in covered {
                    apply_recorded(&self.durable, &change, Survival::Whole);
                }
            }
            Event::Write { .. } | Event::Discard { .. } => {
                self.unflushed.push((self.position, entry.clone()));
            }
        }
        self.position += 1;
        Some(entry)
    }

    /// Replays entries up to `position`, or to the end of the recording if that comes first.
    pub fn advance_to(&mut self, position: usize) {
        while self.position < position && self.step().is_some() {}
    }

    /// The changes that a power cut here may lose, with their positions, in order.
    pub fn unflushed(&self) -> &[(usize, Entry)] {
        &self.unflushed
    }

    /// The devices after a power cut here, in the order of [`Recording::attach`]. `survival` gets
    /// each unflushed change with its position, and returns its fate.
    pub fn power_cut(
        &self,
        mut survival: impl FnMut(usize, &Entry) -> Survival,
    ) -> Vec<MemoryDevice> {
        let images: Vec<_> = self.durable.iter().map(MemoryDevice::snapshot).collect();
        for (position, change) in &self.unflushed {
            apply_recorded(&images, change, survival(*position, change));
        }
        images
    }

    /// The devices at this position without a power cut, in the order of [`Recording::attach`].
    pub fn images(&self) -> Vec<MemoryDevice> {
        self.power_cut(|_, _| Survival::Whole)
    }
}

fn apply_recorded(images: &[MemoryDevice], change: &Entry, survival: Survival) {
    let applied = change.event.apply(&images[change.device], survival);
    applied.expect("a change that was recorded lies within its device");
}
