//! A damaged file system as a volume that can be read like any other.

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_volume::{OpenError, OpenOptions, Rescue, StateRoot, Volume};

use crate::blocks::Blocks;
use crate::chunks;
use crate::evidence::Evidence;
use crate::missing::Missing;
use crate::progress::{Progress, Tracker};
use crate::states::{self, Origin, State};
use crate::trees::{Roots, put_together};
use crate::{RescueError, scan};

/// The best that a search found for a reader.
#[derive(Debug)]
pub enum Found {
    /// The last commit: everything that leads to files and their names is there.
    Sound,
    /// An earlier commit of which all that is there; the root of the last one is lost.
    Earlier(StateRoot),
    /// A volume whose chunks and trees are put together from what is left.
    Salvaged(Box<Volume>),
    /// Nothing that leads to files.
    Nothing,
}

/// Searches `devices`, some of which may be missing, for everything that leads to files. A volume
/// that is put together does without what `rescue` says. `tell` is told from any thread how far the
/// work has come, and says whether it goes on.
///
/// # Errors
/// As those of [`find_states`](crate::find_states).
pub fn salvage(
    devices: &[Arc<dyn Device>],
    rescue: Rescue,
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Found, RescueError> {
    let evidence = Arc::new(Evidence::of(devices.to_vec())?);
    let tracker = Tracker::new(tell);
    let (found, _) = scan::scan(&evidence, &tracker)?;
    let blocks = Arc::new(Blocks::new(evidence.clone(), found));
    let mut missing = Missing::new(&blocks);
    let mut earlier = None;
    if blocks.evidence.volume.is_ok() {
        let states = states::states(&evidence, &blocks, &tracker)?;
        let last = states.iter().find(|state| state.origin == Origin::Superblock);
        if last.is_some_and(is_whole) && !blocks.has_bad_items() {
            return Ok(Found::Sound);
        }
        if last.is_some_and(|last| !last.has_root()) {
            earlier = states.iter().find(|state| is_whole(state)).map(StateRoot::from);
        }
    }
    let volume = readable_volume(&blocks, &mut missing, devices, rescue)?;
    let roots = Roots::of(&blocks, &mut missing);
    drop(missing);
    let (stock, root) = put_together(roots, &blocks);
    // A whole commit is better than a newer one of which parts are in doubt.
    if let Some(state) = earlier.filter(|_| root.is_none() || stock.has_doubts()) {
        return Ok(Found::Earlier(state));
    }
    let Some(root) = root else { return Ok(Found::Nothing) };
    Ok(Found::Salvaged(Box::new(volume.with_stand_ins(&root, Arc::new(stock)))))
}

fn is_whole(state: &State) -> bool {
    state.has_root() && state.has_all_files()
}

/// A volume with the chunks of the chunk tree, or else with those that are found.
pub(crate) fn readable_volume(
    blocks: &Blocks,
    missing: &mut Missing<'_>,
    devices: &[Arc<dyn Device>],
    rescue: Rescue,
) -> Result<Volume, OpenError> {
    let options = OpenOptions { degraded: true, rescue, ..OpenOptions::default() };
    if blocks.evidence.volume.is_ok() {
        return Volume::open(devices.to_vec(), &options);
    }
    let roots = Roots::of(blocks, missing);
    let found = chunks::find(blocks, missing, &roots);
    let devices = devices.to_vec();
    Volume::open_without_chunk_tree(devices, &options, found.chunks, &found.devices)
}
