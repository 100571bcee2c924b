//! Which block groups a balance moves, of those that a file system has: of one that is open, or
//! that a mount tells about.

use std::sync::Arc;

use larder_format::item::{BalanceItem, balance_filter, balance_flags};
use larder_format::{Profile, SpaceKind};
use larder_volume::Chunk;

use super::filters::{Filters, is_possible, least, target};
use crate::error::{Error, Result};

/// A block group that a balance would move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its address.
    pub start: u64,
    /// What it is for.
    pub kind: SpaceKind,
    /// Its profile.
    pub profile: Profile,
    /// The profile that it gets.
    pub target: Option<Profile>,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Bytes that extents use.
    pub used_bytes: u64,
}

/// The block groups that a balance would move, in its order: from the last to the first. `groups`
/// are all that there are, in the order of their addresses, with the bytes that extents use;
/// `usable_devices` can get new ones.
///
/// # Errors
/// [`Error::Devices`] if there are too few devices for a profile, or if metadata becomes less safe
/// without force.
pub fn choose(
    item: &BalanceItem,
    groups: &[(Arc<Chunk>, u64)],
    usable_devices: usize,
) -> Result<Vec<Chosen>> {
    for kind in SpaceKind::ALL {
        check_target(item, kind, groups, usable_devices)?;
    }
    let mut filters = Filters::new(item);
    let mut chosen = Vec::new();
    for (chunk, used_bytes) in groups.iter().rev() {
        let kind = SpaceKind::of_types(chunk.flags());
        if let Some(kind) = kind.filter(|_| filters.accept(chunk, *used_bytes)) {
            chosen.push(Chosen {
                start: chunk.logical().0,
                kind,
                profile: chunk.profile(),
                target: target(item, kind),
                len_bytes: chunk.len_bytes(),
                used_bytes: *used_bytes,
            });
        }
    }
    for kind in SpaceKind::ALL {
        if chosen.iter().filter(|group| group.kind == kind).count() < least(item, kind) {
            chosen.retain(|group| group.kind != kind);
        }
    }
    Ok(chosen)
}

fn check_target(
    item: &BalanceItem,
    kind: SpaceKind,
    groups: &[(Arc<Chunk>, u64)],
    usable_devices: usize,
) -> Result<()> {
    if !item.filters(kind).is_some_and(|args| args.has(balance_filter::CONVERT)) {
        return Ok(());
    }
    let target = target(item, kind);
    let Some(profile) = target.filter(|profile| is_possible(*profile, kind.flag(), usable_devices))
    else {
        let name = target.map_or("that is unknown", Profile::name);
        return Err(Error::Devices(format!(
            "unable to start balance with target {kind} profile {name}: there are \
             {usable_devices} devices"
        )));
    };
    // Trees are made less safe only on demand.
    let is_forced = item.flags.get() & balance_flags::FORCE != 0;
    let is_safer =
        |chunk: &Chunk| chunk.flags().contains(kind.flag()) && chunk.profile().copies() > 1;
    if kind == SpaceKind::Data
        || is_forced
        || profile.copies() > 1
        || !groups.iter().any(|(chunk, _)| is_safer(chunk))
    {
        return Ok(());
    }
    Err(Error::Devices(format!(
        "the conversion to {profile} makes {kind} less safe: --force does it nevertheless"
    )))
}
