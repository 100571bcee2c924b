//! Errors of a device since they were last reset, as DEV_STATS items store them.

use larder_format::item::DevStatsItem;
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

/// The error counts of a device.
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

/// A term that turns the counters of an open volume into the errors of its device: it adds the
/// errors from before the volume was opened, and subtracts those from before the last reset. The
/// sum wraps.
#[derive(Debug, Default)]
pub(crate) struct Baseline(Mutex<DeviceErrors>);

impl Baseline {
    /// The errors so far. `since_opened` returns those of the open volume, while no other thread
    /// resets them.
    pub(crate) fn total(&self, since_opened: impl FnOnce() -> DeviceErrors) -> DeviceErrors {
        self.0.lock().plus(since_opened())
    }

    /// Sets the errors from before the volume was opened.
    pub(crate) fn set_earlier(&self, earlier: DeviceErrors) {
        *self.0.lock() = earlier;
    }

    /// Resets the counters. Returns the errors so far, as [`total`](Self::total) does.
    pub(crate) fn reset(&self, since_opened: impl FnOnce() -> DeviceErrors) -> DeviceErrors {
        let mut baseline = self.0.lock();
        let since_opened = since_opened();
        let errors = baseline.plus(since_opened);
        *baseline = since_opened.negative();
        errors
    }
}

impl DeviceErrors {
    /// The counters in a DEV_STATS item. A shorter item has fewer counters, as for the kernel.
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
