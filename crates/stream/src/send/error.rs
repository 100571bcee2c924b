//! Why a send failed.

use std::io;

use larder_format::Uuid;
use larder_platform::errno::{self, in_words};

use crate::wire::TooLong;

/// Why a snapshot cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Only read-only subvolumes can be sent, or be parents.
    #[error("subvolume {0} is not read-only: use a read-only snapshot of it")]
    NotReadOnly(u64),
    /// The top level has no name for the receiver.
    #[error("subvolume {0} has no name")]
    NotNamed(u64),
    /// A parent or clone source is on another file system, or the same one was opened twice.
    #[error("the subvolume {other} is not on the file system of the snapshot {snapshot}")]
    NotTogether {
        /// Uuid of the snapshot.
        snapshot: Uuid,
        /// Uuid of the parent or clone source.
        other: Uuid,
    },
    /// The snapshot cannot be read.
    #[error(transparent)]
    Read(#[from] larder_filesystem::Error),
    /// An inode that should have names has none.
    #[error("inode {0} has no names")]
    NoNames(u64),
    /// Directories that form a loop, or a path of more than 64 KiB.
    #[error("the path of inode {0} is too long to be sent")]
    PathTooLong(u64),
    /// A command does not fit the version of the stream.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The stream cannot be written.
    #[error("cannot write the stream: {}", in_words(.0))]
    Output(#[source] io::Error),
    /// The mounted file system refuses or fails.
    #[error("{}", in_words(.0))]
    Mounted(#[source] io::Error),
    /// Another thread failed, and its error is reported.
    #[error("the send was stopped")]
    Stopped,
}

impl SendError {
    /// Whether something on a device is wrong or unreadable, and a check is due.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Read(error) if error.is_damage())
    }

    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Read(error) => error.errno(),
            Self::NotReadOnly(_) => errno::EPERM,
            Self::NotTogether { .. } => errno::EXDEV,
            Self::Output(error) | Self::Mounted(error) => errno::of(error).unwrap_or(errno::EIO),
            _ => errno::EINVAL,
        }
    }
}
