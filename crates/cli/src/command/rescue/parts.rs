//! The commands of `rescue` that repair one thing.

use std::path::PathBuf;

use clap::Args;
use larder_rescue::repair::{Action, Wishes};

use crate::devices;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::place::PlaceOptions;
use crate::repairing::Repairing;

/// How a repair is carried out.
#[derive(Debug, Args)]
pub struct How {
    /// Only say what would be done
    #[arg(long, conflicts_with = "undo")]
    plan: bool,
    /// Keep what is overwritten in this new file, for 'larder rescue undo'
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceOptions,
    /// The image files or block devices of one file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl How {
    fn run(self, global: &Global, only: &'static [Action], wishes: Wishes) -> Outcome {
        let place = self.place.place();
        let paths = devices::all(&self.devices, place)?;
        let repairing = Repairing {
            wishes: Wishes { only, ..wishes },
            plan_only: self.plan,
            undo: self.undo,
            json: global.is_json(),
            quiet: global.is_quiet(),
        };
        repairing.run(&paths, place)
    }
}

/// Write bad or old copies of the superblock anew from the newest good one
///
/// If a device has no good copy, what lies on it tells which device it is; if none has, the tree
/// blocks tell the rest, and all that is damaged is repaired in the same step.
///
/// Like every repair it is tried beside the devices first, and written only if the checker finds
/// nothing new and all that can be read stays as it is.
///
/// Examples:
///   larder rescue super-recover disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SuperRecover {
    /// Ask nothing (always so)
    #[arg(short = 'y', long)]
    yes: bool,
    /// Tell what is done (always so)
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    how: How,
}

/// Put the chunk tree together if it is lost
///
/// Reads all devices from end to end. Chunks come back from what is left of their tree, from device
/// extents and block groups, and from the places of tree blocks and data. What else is damaged is
/// repaired in the same step. Does nothing if the chunk tree can be read.
///
/// Examples:
///   larder rescue chunk-recover --undo chunks.undo disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ChunkRecover {
    /// Ask nothing (always so)
    #[arg(short = 'y', long)]
    yes: bool,
    /// Tell what is done (always so)
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    how: How,
}

/// Drop the log that a crash left
///
/// What programs synced since the last commit is lost. Mounting replays a sound log and keeps it: use
/// this only if that fails.
///
/// Examples:
///   larder rescue zero-log --undo log.undo disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ZeroLog {
    #[command(flatten)]
    how: How,
}

/// Drop caches of free space, and build the free space tree anew
///
/// Examples:
///   larder rescue clear-space-cache v2 disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ClearSpaceCache {
    /// v1 for caches in files, v2 for the free space tree; both are set right
    #[arg(value_parser = ["v1", "v2"])]
    version: String,
    #[command(flatten)]
    how: How,
}

/// Build the tree of uuids anew from the subvolumes
///
/// Examples:
///   larder rescue clear-uuid-tree disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ClearUuidTree {
    #[command(flatten)]
    how: How,
}

/// Set the sizes of devices, and what of them is used, right in all places that tell them
///
/// Examples:
///   larder rescue fix-device-size disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct FixDeviceSize {
    #[command(flatten)]
    how: How,
}

/// Accept data that matches no checksum as it is
///
/// Reads all data. Where no copy matches its checksum, the data can be read again afterwards, as it
/// is now: look at the files that --plan names first, or take them from a backup.
///
/// Examples:
///   larder rescue fix-data-checksum --plan disk.img
///   larder rescue fix-data-checksum --undo data.undo disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct FixDataChecksum {
    /// Only say what would be done, as --plan does
    #[arg(short, long)]
    readonly: bool,
    #[command(flatten)]
    how: How,
}

impl SuperRecover {
    pub fn run(self, global: &Global) -> Outcome {
        self.how.run(global, &[Action::Superblocks], Wishes::default())
    }
}

impl ChunkRecover {
    pub fn run(self, global: &Global) -> Outcome {
        self.how.run(global, &[Action::Chunks], Wishes::default())
    }
}

impl ZeroLog {
    pub fn run(self, global: &Global) -> Outcome {
        let wishes = Wishes { zero_log: true, ..Wishes::default() };
        self.how.run(global, &[Action::Log], wishes)
    }
}

impl ClearSpaceCache {
    pub fn run(self, global: &Global) -> Outcome {
        let wishes = Wishes { clear_space_cache: true, ..Wishes::default() };
        self.how.run(global, &[Action::Space], wishes)
    }
}

impl ClearUuidTree {
    pub fn run(self, global: &Global) -> Outcome {
        let wishes = Wishes { clear_uuid_tree: true, ..Wishes::default() };
        self.how.run(global, &[Action::Uuids], wishes)
    }
}

impl FixDeviceSize {
    pub fn run(self, global: &Global) -> Outcome {
        let wishes = Wishes { fix_device_size: true, ..Wishes::default() };
        self.how.run(global, &[Action::Devices, Action::Superblocks], wishes)
    }
}

impl FixDataChecksum {
    pub fn run(mut self, global: &Global) -> Outcome {
        self.how.plan |= self.readonly;
        let wishes = Wishes { check_data_csum: true, fix_data_checksum: true, ..Wishes::default() };
        self.how.run(global, &[Action::Data], wishes)
    }
}
