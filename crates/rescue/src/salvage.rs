//! A damaged file system as a volume that can be read like any other.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use larder_device::Device;
use larder_format::Key;
use larder_volume::{OpenError, OpenOptions, Rescue, StateRoot, Volume};

use crate::blocks::Blocks;
use crate::chunks;
use crate::evidence::Evidence;
use crate::missing::Missing;
use crate::progress::{Progress, Tracker};
use crate::stand_ins::Stock;
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
    let options = OpenOptions { degraded: true, rescue, ..OpenOptions::default() };
    match search(devices, tell)? {
        Best::Sound => Ok(Found::Sound),
        Best::Nothing => Ok(Found::Nothing),
        Best::Earlier(state, _) => Ok(Found::Earlier(state)),
        Best::Parts(state, stock, blocks) => {
            let volume = volume(&blocks, &mut Missing::new(&blocks), devices, &options)?;
            Ok(Found::Salvaged(Box::new(volume.with_stand_ins(&state, Arc::new(stock)))))
        }
    }
}

/// What a repair begins with: a writable volume that is put together.
pub(crate) struct Salvaged {
    pub(crate) volume: Volume,
    state: StateRoot,
    stock: Arc<Stock>,
    /// The newest generation in a superblock.
    pub(crate) newest_generation: u64,
    /// Whether the chunk tree can be read.
    pub(crate) has_chunk_tree: bool,
}

impl Salvaged {
    /// The ranges of keys that older blocks have, with their trees.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (u64, &Range<Key>)> {
        self.stock.lost()
    }

    /// What may be out of date: sentences.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let told = |(tree, Range { start, end }): (u64, &Range<Key>)| {
            format!("subvolume {tree}: items from {start} to {end} are what older blocks have")
        };
        let mut doubts: Vec<String> = self.stock.lost().map(told).collect();
        if self.state.generation < self.newest_generation {
            let generation = self.state.generation;
            doubts.push(format!("the root tree is lost: generation {generation} takes its place"));
        }
        doubts
    }

    /// The volume as it was put together, whatever was written since.
    pub(crate) fn rewound(self) -> Volume {
        self.volume.with_stand_ins(&self.state, self.stock)
    }
}

/// The same for a repair; `None` if the last commit is there, or nothing is.
///
/// # Errors
/// As those of [`find_states`](crate::find_states), and if a device is missing.
pub(crate) fn salvage_for_writing(
    devices: &[Arc<dyn Device>],
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Option<Salvaged>, RescueError> {
    let options = OpenOptions { write: true, short_devices: true, ..OpenOptions::default() };
    let (state, stock, blocks) = match search(devices, tell)? {
        Best::Sound | Best::Nothing => return Ok(None),
        Best::Earlier(state, blocks) => (state, Stock::new(blocks.clone()), blocks),
        Best::Parts(state, stock, blocks) => (state, stock, blocks),
    };
    let stock = Arc::new(stock);
    let volume = volume(&blocks, &mut Missing::new(&blocks), devices, &options)?;
    let volume = volume.with_stand_ins(&state, stock.clone());
    let newest_generation = blocks.evidence.superblock.generation.get();
    let has_chunk_tree = blocks.evidence.volume.is_ok();
    Ok(Some(Salvaged { volume, state, stock, newest_generation, has_chunk_tree }))
}

/// The best that a search found.
enum Best {
    Sound,
    Nothing,
    /// A whole commit before the last one.
    Earlier(StateRoot, Arc<Blocks>),
    /// Trees that are put together.
    Parts(StateRoot, Stock, Arc<Blocks>),
}

fn search(
    devices: &[Arc<dyn Device>],
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Best, RescueError> {
    let evidence = Arc::new(Evidence::of(devices.to_vec())?);
    let tracker = Tracker::new(tell);
    let (found, _) = scan::scan(&evidence, &tracker)?;
    let blocks = Arc::new(Blocks::new(evidence.clone(), found));
    let mut earlier = None;
    if blocks.evidence.volume.is_ok() {
        let states = states::states(&evidence, &blocks, &tracker)?;
        let last = states.iter().find(|state| state.origin == Origin::Superblock);
        if last.is_some_and(is_whole) && !blocks.has_bad_items() {
            return Ok(Best::Sound);
        }
        if last.is_some_and(|last| !last.has_root()) {
            earlier = states.iter().find(|state| is_whole(state)).map(StateRoot::from);
        }
    }
    let roots = Roots::of(&blocks, &mut Missing::new(&blocks));
    let (stock, root) = put_together(roots, &blocks);
    // A whole commit is better than a newer one of which parts are in doubt.
    if let Some(state) = earlier.filter(|_| root.is_none() || stock.has_doubts()) {
        return Ok(Best::Earlier(state, blocks));
    }
    Ok(root.map_or(Best::Nothing, |root| Best::Parts(root, stock, blocks)))
}

fn is_whole(state: &State) -> bool {
    state.has_root() && state.has_all_files()
}

/// A volume with the chunks of the chunk tree, or else with those that are found.
pub(crate) fn volume(
    blocks: &Blocks,
    missing: &mut Missing<'_>,
    devices: &[Arc<dyn Device>],
    options: &OpenOptions,
) -> Result<Volume, OpenError> {
    if blocks.evidence.volume.is_ok() {
        return Volume::open(devices.to_vec(), options);
    }
    let roots = Roots::of(blocks, missing);
    let found = chunks::find(blocks, missing, &roots);
    Volume::open_without_chunk_tree(devices.to_vec(), options, found.chunks, &found.devices)
}
