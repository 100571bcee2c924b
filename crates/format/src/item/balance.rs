//! Which block groups a balance moves.

use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use super::{BalanceItem, DiskBalanceArgs, balance_flags};
use crate::SpaceKind;
use crate::key::{ItemType, Key};
use crate::objectid::BALANCE;

/// Flags of [`DiskBalanceArgs`] (`BTRFS_BALANCE_ARGS_*`): which of the filters are in force.
pub mod balance_filter {
    /// By profile.
    pub const PROFILES: u64 = 1;
    /// By use, below a percentage.
    pub const USAGE: u64 = 1 << 1;
    /// By device.
    pub const DEVID: u64 = 1 << 2;
    /// By a range of the device.
    pub const DRANGE: u64 = 1 << 3;
    /// By logical addresses.
    pub const VRANGE: u64 = 1 << 4;
    /// At most so many.
    pub const LIMIT: u64 = 1 << 5;
    /// At most so many, and none if there are too few.
    pub const LIMIT_RANGE: u64 = 1 << 6;
    /// By the number of stripes.
    pub const STRIPES_RANGE: u64 = 1 << 7;
    /// To another profile.
    pub const CONVERT: u64 = 1 << 8;
    /// With [`CONVERT`]: block groups that have the profile already stay where they are.
    pub const SOFT: u64 = 1 << 9;
    /// By use, between two percentages.
    pub const USAGE_RANGE: u64 = 1 << 10;
}

/// The bit for [`Profile::Single`](crate::Profile::Single) in filters. In block groups it has none.
pub const BALANCE_SINGLE: u64 = 1 << 48;
/// A block group that a resumed balance has filled is at least so full, in percent.
const RESUMED_USAGE: u64 = 90;

impl DiskBalanceArgs {
    /// Whether all of these [`balance_filter`] are in force.
    pub fn has(&self, filters: u64) -> bool {
        self.flags.get() & filters == filters
    }

    /// The two halves of a field that holds a range.
    pub fn bounds(field: U64) -> (u32, u32) {
        (field.get() as u32, (field.get() >> 32) as u32)
    }

    /// The filters with which the kernel resumes too: what was moved stays where it is.
    fn resumed(mut self) -> Self {
        let wanted = if self.has(balance_filter::CONVERT) {
            balance_filter::SOFT
        } else if self.flags.get() & (balance_filter::USAGE | balance_filter::USAGE_RANGE) == 0 {
            self.usage = RESUMED_USAGE.into();
            balance_filter::USAGE
        } else {
            0
        };
        self.flags = (self.flags.get() | wanted).into();
        self
    }
}

impl BalanceItem {
    /// Its key in the root tree.
    pub const KEY: Key = Key { objectid: BALANCE, item_type: ItemType::TEMPORARY_ITEM, offset: 0 };

    /// A balance of nothing.
    pub fn nothing() -> Self {
        Self::new_zeroed()
    }

    /// The filters for a kind of block group; `None` if those are not moved.
    pub fn filters(&self, kind: SpaceKind) -> Option<&DiskBalanceArgs> {
        let (flag, args) = match kind {
            SpaceKind::Data => (balance_flags::DATA, &self.data),
            SpaceKind::Metadata => (balance_flags::METADATA, &self.meta),
            SpaceKind::System => (balance_flags::SYSTEM, &self.sys),
        };
        (self.flags.get() & flag != 0).then_some(args)
    }

    /// The rest of it, after it was interrupted.
    #[must_use]
    pub fn resumed(&self) -> Self {
        let flags = (self.flags.get() | balance_flags::RESUME).into();
        let (data, meta, sys) = (self.data.resumed(), self.meta.resumed(), self.sys.resumed());
        Self { flags, data, meta, sys, ..*self }
    }
}
