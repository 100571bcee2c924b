//! Why a repair is not possible.

use larder_check::Stopped;
use larder_format::SpaceKind;
use larder_volume::{OpenError, ReadError, ScanError, WriteError};

use crate::RescueError;
use crate::undo::UndoError;

/// Why a repair is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A device has no sound superblock.
    #[error(transparent)]
    Superblock(#[from] ScanError),
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Something cannot be read that is needed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The overlay cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The devices cannot be searched.
    #[error(transparent)]
    Salvage(RescueError),
    /// The changes cannot be applied.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The caller stopped it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// There is no room for the new tree blocks.
    #[error("no {} space is free for the new tree blocks", .0.name())]
    NoSpace(SpaceKind),
    /// A block that is needed is lost.
    #[error("no copy of block {logical} of tree {tree} can be read")]
    Lost {
        /// The tree.
        tree: u64,
        /// Its address.
        logical: u64,
    },
    /// The size of the new trees does not settle.
    #[error("the size of the new extent tree does not settle")]
    Unsettled,
}

impl From<RescueError> for RepairError {
    fn from(error: RescueError) -> Self {
        match error {
            RescueError::Stopped => Self::Stopped(Stopped),
            error => Self::Salvage(error),
        }
    }
}
