//! Errors of a device since they were last set to zero: what DEV_STATS items keep.

use larder_format::item::DevStatsItem;
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::member::VolumeDevice;

/// How often a device failed, or held what it should not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceErrors {
    /// Writes that failed.
    pub writes: u64,
    /// Reads that failed.
    pub reads: u64,
    /// Flushes that failed.
    pub flushes: u64,
    /// Tree blocks and sectors of data whose checksum, address or structure was wrong.
    pub corruptions: u64,
    /// Tree blocks of another generation than expected.
    pub generations: u64,
}

/// What is added to the counters of an open volume: what was counted before it was opened, without
/// what was counted before zero was set. The sum wraps.
#[derive(Debug, Default)]
pub(crate) struct Baseline(Mutex<DeviceErrors>);

impl VolumeDevice {
    /// The errors so far.
    pub fn errors(&self) -> DeviceErrors {
        self.baseline.0.lock().plus(self.errors_since_opened())
    }

    /// Says what errors there were before the volume was opened.
    pub fn set_earlier_errors(&self, earlier: DeviceErrors) {
        *self.baseline.0.lock() = earlier;
    }

    /// Counts from zero again. Returns the errors so far.
    pub fn reset_errors(&self) -> DeviceErrors {
        let mut baseline = self.baseline.0.lock();
        let since_opened = self.errors_since_opened();
        let errors = baseline.plus(since_opened);
        *baseline = since_opened.negative();
        errors
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

impl DeviceErrors {
    /// What a DEV_STATS item says. A shorter one has fewer counters, as for the kernel.
    pub fn of_item(data: &[u8]) -> Self {
        let mut item = DevStatsItem::new_zeroed();
        let len = data.len().min(size_of::<DevStatsItem>());
        item.as_mut_bytes()[..len].copy_from_slice(&data[..len]);
        item.into()
    }

    fn map2(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            writes: with(self.writes, other.writes),
            reads: with(self.reads, other.reads),
            flushes: with(self.flushes, other.flushes),
            corruptions: with(self.corruptions, other.corruptions),
            generations: with(self.generations, other.generations),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.map2(other, u64::wrapping_add)
    }

    fn negative(self) -> Self {
        Self::default().map2(self, u64::wrapping_sub)
    }
}

impl From<DevStatsItem> for DeviceErrors {
    fn from(item: DevStatsItem) -> Self {
        Self {
            writes: item.write_errs.get(),
            reads: item.read_errs.get(),
            flushes: item.flush_errs.get(),
            corruptions: item.corruption_errs.get(),
            generations: item.generation_errs.get(),
        }
    }
}

impl From<DeviceErrors> for DevStatsItem {
    fn from(errors: DeviceErrors) -> Self {
        Self {
            write_errs: errors.writes.into(),
            read_errs: errors.reads.into(),
            flush_errs: errors.flushes.into(),
            corruption_errs: errors.corruptions.into(),
            generation_errs: errors.generations.into(),
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
