//! A device that fails on demand.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::bytes::{concatenated, total_len};
use larder_device::{Device, DeviceError, Operation, check_call};

/// The unit of torn writes.
const SECTOR_BYTES: u64 = 512;

/// A fault: the calls that it strikes, and its effect.
///
/// ```
/// # use larder_device::Operation;
/// # use larder_test_devices::Fault;
/// let third_write_fails = Fault::fail(Operation::Write).after(2).times(1);
/// let bad_sector = Fault::fail(Operation::Read).within(65536..66048);
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    operation: Operation,
    range: Range<u64>,
    skipped_calls: u64,
    remaining_calls: u64,
    effect: Effect,
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Fail,
    Tear { sectors: u64, acknowledged: bool },
    Corrupt { flip: u8 },
}

impl Fault {
    fn new(operation: Operation, effect: Effect) -> Self {
        let (skipped_calls, remaining_calls) = (0, u64::MAX);
        Self { operation, range: 0..u64::MAX, skipped_calls, remaining_calls, effect }
    }

    /// Calls fail with an I/O error (`EIO`) and do nothing else.
    pub fn fail(operation: Operation) -> Self {
        Self::new(operation, Effect::Fail)
    }

    /// Writes store only their first `sectors` sectors of 512 bytes, then fail with an I/O error.
    pub fn tear(sectors: u64) -> Self {
        Self::new(Operation::Write, Effect::Tear { sectors, acknowledged: false })
    }

    /// Writes store only their first `sectors` sectors of 512 bytes, and report success.
    pub fn tear_silently(sectors: u64) -> Self {
        Self::new(Operation::Write, Effect::Tear { sectors, acknowledged: true })
    }

    /// Reads succeed, but each byte inside the range of [`within`](Self::within) has the bits of
    /// `flip` inverted.
    pub fn corrupt(flip: u8) -> Self {
        Self::new(Operation::Read, Effect::Corrupt { flip })
    }

    /// Strikes only calls whose range meets this one, in bytes. A flush's range is the whole
    /// device.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Lets the first `calls` calls that it would strike pass.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.skipped_calls = calls;
        self
    }

    /// Strikes `calls` times, then no more.
    #[must_use]
    pub fn times(mut self, calls: u64) -> Self {
        self.remaining_calls = calls;
        self
    }

    /// Whether it strikes this call, which it counts.
    fn strikes(&mut self, operation: Operation, call: &Range<u64>) -> bool {
        let meets = call.start < self.range.end && self.range.start < call.end;
        if operation != self.operation || !meets {
            return false;
        }
        if self.skipped_calls > 0 {
            self.skipped_calls -= 1;
            return false;
        }
        let strikes = self.remaining_calls > 0;
        self.remaining_calls = self.remaining_calls.saturating_sub(1);
        strikes
    }
}

/// Passes calls to another device, except where a [`Fault`] strikes.
///
/// Among the faults that strike one call, the first that is not a corruption wins.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    planted: Vec<Fault>,
    strikes: u64,
}

impl Faults {
    fn strike(&mut self, operation: Operation, call: &Range<u64>) -> Vec<Fault> {
        let mut struck = Vec::new();
        for fault in &mut self.planted {
            if fault.strikes(operation, call) {
                struck.push(fault.clone());
            }
        }
        self.strikes += struck.len() as u64;
        struck
    }
}

impl FaultDevice {
    /// A device that passes everything to `inner`, until faults are added.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, faults: Mutex::default() }
    }

    /// Adds a fault. Its counts start here.
    pub fn inject(&self, fault: Fault) {
        self.faults.lock().planted.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.faults.lock().planted.clear();
    }

    /// How often faults have struck, including removed ones.
    pub fn strikes(&self) -> u64 {
        self.faults.lock().strikes
    }

    /// Finds the faults that strike a call.
    fn strike(&self, operation: Operation, offset: u64, len_bytes: u64) -> Vec<Fault> {
        let call = offset..offset.saturating_add(len_bytes);
        self.faults.lock().strike(operation, &call)
    }

    /// As [`strike`](Self::strike), for calls that either fail or pass whole.
    fn strike_whole(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Vec<Fault>, DeviceError> {
        let struck = self.strike(operation, offset, len_bytes);
        if struck.iter().any(|fault| matches!(fault.effect, Effect::Fail)) {
            return Err(self.io_error(operation, offset, len_bytes));
        }
        Ok(struck)
    }

    fn io_error(&self, operation: Operation, offset: u64, len_bytes: u64) -> DeviceError {
        DeviceError::io(self, operation, offset, len_bytes, Errno::IO)
    }
}

impl Device for FaultDevice {
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
        let struck = self.strike_whole(Operation::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, offset)?;
        for fault in struck {
            if let Effect::Corrupt { flip } = fault.effect {
                let start = fault.range.start.saturating_sub(offset);
                let end = (fault.range.end.saturating_sub(offset)).min(buf.len() as u64);
                buf[start as usize..end as usize].iter_mut().for_each(|byte| *byte ^= flip);
            }
        }
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = total_len(bufs);
        check_call(self, Operation::Write, offset, len_bytes)?;
        for fault in self.strike(Operation::Write, offset, len_bytes) {
            match fault.effect {
                Effect::Corrupt { .. } => continue,
                Effect::Fail => {}
                Effect::Tear { sectors, acknowledged } => {
                    let mut bytes = concatenated(bufs);
                    bytes.truncate(sectors.saturating_mul(SECTOR_BYTES) as usize);
                    self.inner.write_at(&bytes, offset)?;
                    if acknowledged {
                        return Ok(());
                    }
                }
            }
            return Err(self.io_error(Operation::Write, offset, len_bytes));
        }
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.strike_whole(Operation::Flush, 0, self.len_bytes())?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.strike_whole(Operation::Discard, offset, len_bytes)?;
        self.inner.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.inner.readahead(offset, len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::MemoryDevice;

    fn device() -> FaultDevice {
        FaultDevice::new(Arc::new(MemoryDevice::new("memory", 1 << 20)))
    }

    fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        device.read_at(&mut buf, offset).unwrap();
        buf
    }

    #[test]
    fn strikes_the_chosen_calls() {
        let device = device();
        device.inject(Fault::fail(Operation::Write).after(2).times(1));
        let outcomes: Vec<bool> =
            (0..5).map(|offset| device.write_at(b"x", offset).is_ok()).collect();
        assert_eq!(outcomes, [true, true, false, true, true]);
        assert_eq!(device.strikes(), 1);
        assert_eq!(read(&device, 0, 5), b"xx\0xx");
    }

    #[test]
    fn strikes_the_chosen_range_until_healed() {
        let device = device();
        device.inject(Fault::fail(Operation::Read).within(4096..8192));
        let fails = |offset, len| device.read_at(&mut vec![0; len], offset).is_err();
        assert!(!fails(0, 4096) && fails(0, 4097) && fails(8191, 1) && !fails(8192, 1));
        device.heal();
        assert!(!fails(4096, 4096));
    }

    #[test]
    fn error_names_everything() {
        let device = device();
        device.inject(Fault::fail(Operation::Write));
        let error = device.write_at(&[0; 512], 1024).unwrap_err().to_string();
        let place = "memory: write of 512 bytes at offset 1024: ";
        assert!(error.starts_with(place) && error.len() > place.len(), "{error}");
    }

    #[test]
    fn flush_fails() {
        let device = device();
        device.inject(Fault::fail(Operation::Flush).times(1));
        assert!(device.flush().is_err());
        assert!(device.flush().is_ok());
    }

    #[test]
    fn tears_writes_at_sectors() {
        let device = device();
        device.inject(Fault::tear(1).times(1));
        let halves = [IoSlice::new(&[1; 700]), IoSlice::new(&[2; 700])];
        assert!(device.write_vectored_at(&halves, 0).is_err());
        assert_eq!(read(&device, 0, 1400), [vec![1; 512], vec![0; 888]].concat());

        device.inject(Fault::tear_silently(2).times(1));
        assert!(device.write_vectored_at(&halves, 0).is_ok());
        assert_eq!(read(&device, 0, 1400), [vec![1; 700], vec![2; 324], vec![0; 376]].concat());
    }

    #[test]
    fn corrupts_only_reads_of_the_range() {
        let device = device();
        device.write_at(&[0x0F; 100], 0).unwrap();
        device.inject(Fault::corrupt(0xFF).within(10..20));
        let expected = [[0x0F; 10], [0xF0; 10], [0x0F; 10]].concat();
        assert_eq!(read(&device, 0, 30), expected);
        assert_eq!(read(&device, 15, 10), expected[15..25]);
        device.heal();
        assert_eq!(read(&device, 0, 30), [0x0F; 30]);
    }
}
