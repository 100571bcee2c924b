//! Which block groups a balance moves: the filters, as the kernel reads them.

use larder_format::item::{BALANCE_SINGLE, BalanceItem, DiskBalanceArgs, balance_filter as filter};
use larder_format::{BlockGroupFlags, Profile, SpaceKind};
use larder_volume::Chunk;

/// The filters, and how many block groups each kind may have yet.
pub(super) struct Filters {
    item: BalanceItem,
}

impl Filters {
    pub(super) fn new(item: &BalanceItem) -> Self {
        Self { item: *item }
    }

    /// Whether a group is one to move. Each that is counts for the limits.
    pub(super) fn accept(&mut self, chunk: &Chunk, used_bytes: u64) -> bool {
        let Some(kind) = SpaceKind::of_types(chunk.flags()) else { return false };
        let Some(args) = self.item.filters(kind).filter(|args| fits(args, chunk, used_bytes))
        else {
            return false;
        };
        let (least, most) = DiskBalanceArgs::bounds(args.limit);
        let left = if args.has(filter::LIMIT) {
            args.limit.get().checked_sub(1)
        } else if args.has(filter::LIMIT_RANGE) {
            most.checked_sub(1).map(|most| u64::from(least) | u64::from(most) << 32)
        } else {
            return true;
        };
        if let Some(left) = left {
            self.args_mut(kind).limit = left.into();
        }
        left.is_some()
    }

    fn args_mut(&mut self, kind: SpaceKind) -> &mut DiskBalanceArgs {
        match kind {
            SpaceKind::Data => &mut self.item.data,
            SpaceKind::Metadata => &mut self.item.meta,
            SpaceKind::System => &mut self.item.sys,
        }
    }
}

/// The fewest groups of a kind of which any are moved.
pub(super) fn least(item: &BalanceItem, kind: SpaceKind) -> usize {
    let args = item.filters(kind).filter(|args| args.has(filter::LIMIT_RANGE));
    args.map_or(0, |args| DiskBalanceArgs::bounds(args.limit).0 as usize)
}

/// The profile to which groups of a kind are converted.
pub(super) fn target(item: &BalanceItem, kind: SpaceKind) -> Option<Profile> {
    let args = item.filters(kind).filter(|args| args.has(filter::CONVERT))?;
    Profile::ALL.into_iter().find(|profile| bits_of(*profile) == args.target.get())
}

/// The bit of a profile in filters.
fn bits_of(profile: Profile) -> u64 {
    match profile.flags() {
        none if none.is_empty() => BALANCE_SINGLE,
        flags => flags.bits(),
    }
}

fn fits(args: &DiskBalanceArgs, chunk: &Chunk, used_bytes: u64) -> bool {
    let profile = bits_of(chunk.profile());
    let (start, end) = (chunk.logical().0, chunk.end().0);
    let (pstart, pend) = (args.pstart.get(), args.pend.get());
    let of_device = || {
        let stripes = chunk.stripes().iter();
        stripes.filter(|stripe| stripe.devid == args.devid.get())
    };
    let in_range = |physical: u64| {
        physical < pend && physical.saturating_add(chunk.bytes_per_stripe()) > pstart
    };
    let count = chunk.stripes().len() as u64;
    let stripes = u64::from(args.stripes_min.get())..=u64::from(args.stripes_max.get());
    let is_in_range = args.has(filter::DRANGE | filter::DEVID);
    [
        !args.has(filter::PROFILES) || args.profiles.get() & profile != 0,
        is_used_so_much(args, chunk.len_bytes(), used_bytes),
        !args.has(filter::DEVID) || of_device().next().is_some(),
        !is_in_range || of_device().any(|stripe| in_range(stripe.physical.0)),
        !args.has(filter::VRANGE) || (start < args.vend.get() && end > args.vstart.get()),
        !args.has(filter::STRIPES_RANGE) || stripes.contains(&count),
        !args.has(filter::SOFT | filter::CONVERT) || args.target.get() != profile,
    ]
    .into_iter()
    .all(|passes| passes)
}

fn is_used_so_much(args: &DiskBalanceArgs, len_bytes: u64, used: u64) -> bool {
    // An empty group counts as below any bound.
    let bound = |percent: u64| match percent {
        0 => 1,
        1..=100 => (u128::from(len_bytes) * u128::from(percent) / 100) as u64,
        _ => len_bytes,
    };
    if args.has(filter::USAGE) {
        return used < bound(args.usage.get());
    }
    if args.has(filter::USAGE_RANGE) {
        let (least, most) = DiskBalanceArgs::bounds(args.usage);
        let least = if least == 0 { 0 } else { bound(u64::from(least)) };
        return used >= least && used < bound(u64::from(most));
    }
    true
}

/// Whether new groups of these types may have the profile.
pub(super) fn is_possible(profile: Profile, types: BlockGroupFlags, devices: usize) -> bool {
    let shape = profile.shape();
    let has_parity = profile.parities() > 0;
    devices >= shape.min_devices && !has_parity && !types.is_empty()
}
