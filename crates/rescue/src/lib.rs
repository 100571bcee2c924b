//! What is left of a file system on its devices.
//!
//! A commit never overwrites the blocks of the one before, and space that it frees is given out
//! again only later. So a device holds tree blocks of many earlier commits. [`find_states`] reads
//! every one of them:
//!
//! 1. `evidence`: the superblocks, and the chunks if the chunk tree can be read.
//! 2. `scan`: every device from its start to its end, all at once: where metadata lies according to
//!    the chunks, or everywhere. A tree block is known by the uuid of the file system in it and its
//!    checksum.
//! 3. `blocks`: what was found, by address and generation.
//! 4. `states`: the roots of the root tree among them, and what is missing below each.
//!
//! [`salvage`] makes a volume of what was found, which all readers take like any other:
//!
//! 5. `attach`: a tree, put together from what its root reaches and from the newest other blocks.
//! 6. `trees`: all trees that readers of files need.
//! 7. `chunks`, `sequence`, `metadata_chunks`: where chunks lie if the chunk tree does not say it.
//! 8. `stand_ins`: made-up nodes above blocks that were found, and the volume's access to both.
//!
//! [`Past`] finds deleted files, and makes volumes of the commits that had them.
//!
//! `superblocks` makes superblocks again where a device has none. [`repair`] plans and proves repairs beside the devices, and [`undo`] writes them and takes them
//! back.
//!
//! # Invariants
//! - No byte of any device changes, except by [`undo`].
//! - Only blocks with a right checksum count, and only where the chunks say that they lie, if there
//!   are chunks. A block counts for a pointer to it only if its generation and level are those of
//!   the pointer.
//! - A state is called complete only if every block of each of its trees was found.
//! - Memory is bounded by the metadata on the devices: 72 bytes for each copy of a tree block of
//!   any age, 50 for each pointer to a block that is missing, 3 MiB for each device, and what is
//!   told of each state. A salvaged volume takes 90 more for each block of a damaged tree, and 16
//!   for each block in use. No input makes it panic or loop: each step into a tree goes one level
//!   down, and what lies below a block is counted once.
//! - A device that fails in some places is read in all others.
#![forbid(unsafe_code)]

mod attach;
mod blocks;
mod checksums;
mod chunks;
mod coverage;
mod deleted;
mod error;
mod evidence;
mod metadata_chunks;
mod missing;
mod progress;
pub mod repair;
mod salvage;
mod scan;
mod sequence;
mod stand_ins;
mod states;
mod superblocks;
mod trees;
pub mod undo;

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_format::Uuid;
use larder_volume::{OpenError, StateRoot};

pub use deleted::{DeletedFile, Past};
pub use error::RescueError;
pub use progress::Progress;
pub use salvage::{Found, salvage};
pub use scan::Unreadable;
pub use states::{Origin, State};

use blocks::{Blocks, Pointer};
use evidence::Evidence;
use progress::Tracker;

/// The states that were found.
#[derive(Debug)]
pub struct FoundStates {
    /// The file system.
    pub fsid: Uuid,
    /// The states, the newest first.
    pub states: Vec<State>,
    /// Why the devices were read from end to end, if they were: the chunks could not be read.
    pub without_chunks: Option<String>,
    /// Ranges that a device could not read.
    pub unreadable: Vec<Unreadable>,
}

/// Finds all states of the file system on `devices`, some of which may be missing. `tell` is told
/// from any thread how far the work has come, and says whether it goes on.
///
/// # Errors
/// If no device has a sound superblock, if they are of different file systems, or if `tell` ended
/// the work.
pub fn find_states(
    devices: Vec<Arc<dyn Device>>,
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<FoundStates, RescueError> {
    let evidence = Arc::new(Evidence::of(devices)?);
    let (states, unreadable) = search(&evidence, tell)?;
    let without_chunks = evidence.volume.as_ref().err().map(ToString::to_string);
    Ok(FoundStates { fsid: evidence.superblock.fsid(), states, without_chunks, unreadable })
}

/// Finds the state of this generation. Reads no more than its root if a superblock names that.
///
/// # Errors
/// As those of [`find_states`], and if there is none or the chunks cannot be read.
pub fn find_state(
    devices: Vec<Arc<dyn Device>>,
    generation: u64,
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<StateRoot, RescueError> {
    let name = devices.first().map(|device| device.name().to_owned()).unwrap_or_default();
    let evidence = Evidence::of(devices)?;
    if evidence.volume.is_err() {
        return Err(evidence.volume.expect_err("it is one").into());
    }
    let evidence = Arc::new(evidence);
    let volume = evidence.volume.as_ref().expect("an error was returned");
    let named = states::named(&evidence.superblock);
    let is_there = |root: &Pointer| root.generation == generation && root.is_in(volume);
    if let Some(root) = named.into_iter().map(|(root, _)| root).find(is_there) {
        return Ok(root.into());
    }
    let (states, _) = search(&evidence, tell)?;
    let found = states.iter().find(|state| state.generation == generation && state.has_root());
    let missing = || OpenError::NoSuchState { device: name, generation };
    Ok(found.map(StateRoot::from).ok_or_else(missing)?)
}

/// Finds the newest state of which everything is there that leads to files; otherwise the newest of
/// all.
///
/// # Errors
/// As those of [`find_states`].
pub fn find_newest_state(
    devices: Vec<Arc<dyn Device>>,
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Option<StateRoot>, RescueError> {
    let (states, _) = search(&Arc::new(Evidence::of(devices)?), tell)?;
    let found = states.iter().filter(|state| state.has_root());
    let whole = found.clone().find(|state| state.has_all_files());
    Ok(whole.or_else(|| found.clone().next()).map(StateRoot::from))
}

fn search(
    evidence: &Arc<Evidence>,
    tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<(Vec<State>, Vec<Unreadable>), RescueError> {
    let tracker = Tracker::new(tell);
    let (found, unreadable) = scan::scan(evidence, &tracker)?;
    let blocks = Blocks::new(evidence.clone(), found);
    Ok((states::states(evidence, &blocks, &tracker)?, unreadable))
}
