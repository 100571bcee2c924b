//! The devices of a volume.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_device::{Device, DeviceError};
use larder_format::item::DevItem;
use larder_format::{Physical, Uuid};
use larder_locks::elsewhere;
use parking_lot::{Mutex, RwLock};

use crate::errors::{Baseline, DeviceErrors};
use crate::report::ReportLimit;
use crate::stats::DeviceCounters;

/// A device of the file system, present or missing.
#[derive(Debug)]
pub struct VolumeDevice {
    pub(crate) devid: u64,
    pub(crate) uuid: Uuid,
    /// As the next superblock has it.
    pub(crate) dev_item: Mutex<DevItem>,
    pub(crate) device: Option<Arc<dyn Device>>,
    /// The commit up to which its content is right: that of the superblock that was found on it, or
    /// the last one before it was left out.
    pub(crate) generation: Mutex<Option<u64>>,
    /// It missed commits, and has not been brought up to date since.
    pub(crate) is_stale: AtomicBool,
    /// It refused a write (`left_out.rs`).
    pub(crate) is_left_out: AtomicBool,
    pub(crate) is_seed: bool,
    /// A crash left its first superblock older than another copy.
    pub(crate) has_older_first_copy: bool,
    pub(crate) counters: DeviceCounters,
    pub(crate) baseline: Baseline,
    pub(crate) reports: ReportLimit,
    pub(crate) twin: RwLock<Option<Arc<Twin>>>,
    pub(crate) is_avoided: AtomicBool,
    /// It was a twin until now, and no commit has told so yet.
    pub(crate) took_place: AtomicBool,
}

/// The id of a device that is to take the place of another.
pub const TWIN_DEVID: u64 = 0;

/// A device that was found with superblocks of a twin.
#[derive(Clone, Debug)]
pub struct FoundTwin {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Its own UUID.
    pub uuid: Uuid,
    /// Whether it has everything that was written until the last commit.
    pub is_current: bool,
}

/// A twin.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) member: VolumeDevice,
    failures: AtomicU64,
}

impl Twin {
    pub(crate) fn new(member: VolumeDevice) -> Self {
        Self { member, failures: AtomicU64::new(0) }
    }

    /// How many writes failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.failures() > 0
    }

    pub(crate) fn write(&self, bufs: &[IoSlice<'_>], at: Physical) {
        if !self.has_failed() && self.member.write_only_here(bufs, at).is_err() {
            self.failures.fetch_add(1, Relaxed);
        }
    }

    /// Takes the sizes over from the item of the device.
    pub(crate) fn follow(&self, item: &DevItem) {
        self.member.change_dev_item(|own| {
            own.total_bytes = item.total_bytes;
            own.bytes_used = item.bytes_used;
        });
    }

    pub(crate) fn flush(&self) {
        if !self.has_failed() && self.member.flush().is_err() {
            self.failures.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn discard(&self, at: Physical, len_bytes: u64) {
        if let Some(device) = self.member.device().filter(|_| !self.has_failed()) {
            // A device that cannot keeps its content: nothing depends on it.
            let _ = elsewhere(|| device.discard(at.0, len_bytes));
        }
    }
}

impl VolumeDevice {
    /// A device of a new file system.
    pub fn new(dev_item: DevItem, device: Arc<dyn Device>) -> Self {
        Self::member(dev_item, Some(device), None)
    }

    /// A missing device of the file system.
    pub fn missing(dev_item: DevItem) -> Self {
        Self::member(dev_item, None, None)
    }

    pub(crate) fn member(
        dev_item: DevItem,
        device: Option<Arc<dyn Device>>,
        generation: Option<u64>,
    ) -> Self {
        Self {
            devid: dev_item.devid.get(),
            uuid: dev_item.uuid(),
            dev_item: Mutex::new(dev_item),
            device,
            generation: Mutex::new(generation),
            is_stale: AtomicBool::new(false),
            is_left_out: AtomicBool::new(false),
            is_seed: false,
            has_older_first_copy: false,
            counters: DeviceCounters::default(),
            baseline: Baseline::default(),
            reports: ReportLimit::default(),
            twin: RwLock::default(),
            is_avoided: AtomicBool::new(false),
            took_place: AtomicBool::new(false),
        }
    }

    /// Whether its first superblock was sound, but older than another copy, when the volume was
    /// opened: a crash came while the copies were written. The kernel reads the first one only.
    pub fn has_older_first_copy(&self) -> bool {
        self.has_older_first_copy
    }

    /// Id of the device in the file system.
    pub fn devid(&self) -> u64 {
        self.devid
    }

    /// UUID of the device.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Its DEV_ITEM, as it was found in the chunk tree or changed since.
    pub fn dev_item(&self) -> DevItem {
        *self.dev_item.lock()
    }

    /// Changes its DEV_ITEM, which its next superblocks have. The caller changes that of the chunk
    /// tree in the same commit.
    ///
    /// # Panics
    /// If the id or the UUID of the device changes.
    pub fn change_dev_item(&self, change: impl FnOnce(&mut DevItem)) {
        let mut item = self.dev_item.lock();
        change(&mut item);
        assert_eq!((item.devid.get(), item.uuid()), (self.devid, self.uuid), "it is this device");
    }

    /// The device itself, unless it is missing.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// The device's name in messages: its own name, or that it is missing.
    pub fn name(&self) -> String {
        match &self.device {
            Some(device) => device.name().to_owned(),
            None => format!("missing device {}", self.devid()),
        }
    }

    /// Whether the device is missing.
    pub fn is_missing(&self) -> bool {
        self.device.is_none()
    }

    /// The commit up to which its content is right: the generation of the superblock that was found
    /// on it, or of the last commit before it was left out.
    pub fn generation(&self) -> Option<u64> {
        *self.generation.lock()
    }

    /// Whether the device belongs to the seed that this file system grew from; it is never written.
    pub fn is_seed(&self) -> bool {
        self.is_seed
    }

    /// Reads; `None` if the device is missing.
    pub(crate) fn read(&self, buf: &mut [u8], at: Physical) -> Option<Result<(), DeviceError>> {
        let device = self.device.as_ref()?;
        self.counters.reads.add(1);
        self.counters.read_bytes.add(buf.len() as u64);
        let result = elsewhere(|| device.read_at(buf, at.0));
        self.counters.read_errors.add(u64::from(result.is_err()));
        Some(result)
    }

    /// Writes the buffers one after the other, to its twin too; does nothing and succeeds on a
    /// missing device, on a seed, and on one that is left out.
    pub(crate) fn write(&self, bufs: &[IoSlice<'_>], at: Physical) -> Result<(), DeviceError> {
        self.write_to_twin(bufs, at);
        self.write_only_here(bufs, at)
    }

    /// The same without the twin.
    pub(crate) fn write_only_here(
        &self,
        bufs: &[IoSlice<'_>],
        at: Physical,
    ) -> Result<(), DeviceError> {
        let Some(device) = self.written_to() else { return Ok(()) };
        self.counters.writes.add(1);
        self.counters.written_bytes.add(bufs.iter().map(|buf| buf.len() as u64).sum());
        let result = elsewhere(|| match bufs {
            [buf] => device.write_at(buf, at.0),
            bufs => device.write_vectored_at(bufs, at.0),
        });
        result.inspect_err(|error| {
            self.counters.write_errors.add(1);
            self.report_failure(error);
        })
    }

    /// The device for writes, if it is written.
    pub(crate) fn written_to(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref().filter(|_| !self.is_seed && !self.is_left_out())
    }

    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        if let Some(twin) = self.twin() {
            twin.flush();
        }
        let Some(device) = self.written_to() else { return Ok(()) };
        elsewhere(|| device.flush()).inspect_err(|error| {
            self.counters.flush_errors.add(1);
            self.report_failure(error);
        })
    }

    pub(crate) fn discard(&self, at: Physical, len_bytes: u64) -> Result<(), DeviceError> {
        if let Some(twin) = self.twin() {
            twin.discard(at, len_bytes);
        }
        let Some(device) = self.written_to() else { return Ok(()) };
        elsewhere(|| device.discard(at.0, len_bytes))
    }

    pub(crate) fn flushes_in_one_step(&self) -> bool {
        !self.has_twin() && self.written_to().is_some_and(|device| device.flushes_in_one_step())
    }

    pub(crate) fn wants_discards(&self) -> bool {
        self.written_to().is_some_and(|device| device.wants_discards())
    }

    /// Reports an error of the device.
    pub(crate) fn report_failure(&self, error: &DeviceError) {
        let devid = self.devid();
        self.reports.report(|left_out| tracing::error!("device {devid}: {error}{left_out}"));
    }

    /// The errors so far.
    pub fn errors(&self) -> DeviceErrors {
        self.baseline.total(|| self.errors_since_opened())
    }

    /// Sets the errors from before the volume was opened.
    pub fn set_earlier_errors(&self, earlier: DeviceErrors) {
        self.baseline.set_earlier(earlier);
    }

    /// Resets the counters. Returns the errors so far.
    pub fn reset_errors(&self) -> DeviceErrors {
        self.baseline.reset(|| self.errors_since_opened())
    }

    fn errors_since_opened(&self) -> DeviceErrors {
        let counters = &self.counters;
        DeviceErrors {
            writes: counters.write_errors.get(),
            reads: counters.read_errors.get(),
            flushes: counters.flush_errors.get(),
            corruptions: counters.corruption_errors.get(),
            generations: counters.generation_errors.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_format::item::DevItem;
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn errors_add_up_until_they_are_reset() {
        let device = VolumeDevice::missing(DevItem::new_zeroed());
        device.set_earlier_errors(DeviceErrors { reads: 3, ..DeviceErrors::default() });
        device.counters.read_errors.add(2);
        device.counters.write_errors.add(1);
        let both = DeviceErrors { reads: 5, writes: 1, ..DeviceErrors::default() };
        assert_eq!(device.errors(), both);
        assert_eq!(device.reset_errors(), both);
        assert_eq!(device.errors(), DeviceErrors::default());
        device.counters.read_errors.add(1);
        assert_eq!(device.errors().reads, 1);
    }
}
