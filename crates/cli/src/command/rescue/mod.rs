//! `larder rescue`: when a file system is damaged.

mod find_roots;
mod parts;
mod undo;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look for what is left of a damaged file system, and repair parts of it
#[derive(Debug, Subcommand)]
pub enum Rescue {
    FindRoots(find_roots::FindRoots),
    SuperRecover(parts::SuperRecover),
    ChunkRecover(parts::ChunkRecover),
    ZeroLog(parts::ZeroLog),
    ClearSpaceCache(parts::ClearSpaceCache),
    ClearUuidTree(parts::ClearUuidTree),
    FixDeviceSize(parts::FixDeviceSize),
    FixDataChecksum(parts::FixDataChecksum),
    Undo(undo::Undo),
}

impl Rescue {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::FindRoots(command) => command.run(global),
            Self::SuperRecover(command) => command.run(global),
            Self::ChunkRecover(command) => command.run(global),
            Self::ZeroLog(command) => command.run(global),
            Self::ClearSpaceCache(command) => command.run(global),
            Self::ClearUuidTree(command) => command.run(global),
            Self::FixDeviceSize(command) => command.run(global),
            Self::FixDataChecksum(command) => command.run(global),
            Self::Undo(command) => command.run(),
        }
    }
}
