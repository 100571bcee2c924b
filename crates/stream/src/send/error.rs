//! Why a send fails.

use std::io;

use larder_format::Uuid;

use crate::wire::TooLong;

/// Why a snapshot cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A subvolume that can change cannot be sent, nor be a parent.
    #[error("subvolume {0} is not read-only: a read-only snapshot of it would do")]
    NotReadOnly(u64),
    /// The top level has no name under which it could be received.
    #[error("subvolume {0} has no name")]
    NotNamed(u64),
    /// A parent or clone source is on another file system, or on this one but opened apart from the
    /// snapshot.
    #[error("the subvolume {other} is not on the file system of the snapshot {snapshot}")]
    NotTogether {
        /// Uuid of the snapshot.
        snapshot: Uuid,
        /// Uuid of the parent or clone source.
        other: Uuid,
    },
    /// What is to be sent cannot be read.
    #[error(transparent)]
    Read(#[from] larder_filesystem::Error),
    /// An inode that should have names has none.
    #[error("inode {0} has no names")]
    NoNames(u64),
    /// Directories that lie in each other, or a path of more than 64 KiB.
    #[error("the path of inode {0} is too long to be sent")]
    PathTooLong(u64),
    /// A command does not fit the version of the stream.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The stream cannot be written.
    #[error("cannot write the stream: {0}")]
    Output(#[source] io::Error),
    /// The file system that is mounted refuses or fails.
    #[error("{0}")]
    Mounted(#[source] io::Error),
    /// Another thread failed, whose error is the one that is reported.
    #[error("the send was stopped")]
    Stopped,
}
