//! Why nothing can be found.

use larder_volume::{OpenError, ScanError};

/// Why nothing can be found.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// No devices were given.
    #[error("no devices were given")]
    NoDevices,
    /// A device has no sound superblock.
    #[error(transparent)]
    Superblock(#[from] ScanError),
    /// The devices do not belong together, or have features that are not supported.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The caller ended the work.
    #[error("the search was stopped before its end")]
    Stopped,
}
