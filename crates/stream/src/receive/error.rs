//! Why receiving failed.

use std::io;

use larder_format::Uuid;
use larder_format::compression::CompressionError;
use larder_platform::errno::{self, in_words};

use crate::wire::{Action, Command, StreamError};

/// A stream that was not received to its end.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ReceiveError {
    /// Name of the subvolume that was begun and not finished: it can be changed, and has no
    /// received uuid.
    pub unfinished: Option<Vec<u8>>,
    /// The reason.
    #[source]
    pub problem: ReceiveProblem,
}

/// Why a stream was not received to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveProblem {
    /// The stream cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The target cannot be opened.
    #[error("the target cannot be opened: {}", in_words(.0))]
    Target(#[from] io::Error),
    /// There was nothing to read.
    #[error("the input is empty: there is no stream in it")]
    Empty,
    /// A command cannot be applied.
    #[error(transparent)]
    Command(Box<CommandError>),
    /// Commands could not be applied. Each was reported.
    #[error("{0} commands could not be applied")]
    Errors(u64),
    /// The server of the mount could not go on, for this reason.
    #[error("{0}")]
    Served(String),
    /// The observer stopped it.
    #[error("receiving was stopped at byte {0} of the stream")]
    Stopped(u64),
}

impl ReceiveError {
    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        let of_system = |error| errno::of(error).unwrap_or(errno::EIO);
        match &self.problem {
            ReceiveProblem::Command(error) => match &error.problem {
                CommandProblem::Filesystem(error) => error.errno(),
                CommandProblem::NotReceived { .. } => errno::ENOENT,
                CommandProblem::Unsupported(_) => errno::EOPNOTSUPP,
                CommandProblem::Io(error) => of_system(error),
                _ => errno::EINVAL,
            },
            ReceiveProblem::Target(error) => of_system(error),
            ReceiveProblem::Stopped(_) => errno::EINTR,
            _ => errno::EINVAL,
        }
    }
}

impl From<CommandError> for ReceiveProblem {
    fn from(error: CommandError) -> Self {
        Self::Command(Box::new(error))
    }
}

/// A command that cannot be applied.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {problem}", Readable(path))]
pub struct CommandError {
    /// What was to be done.
    pub action: Action,
    /// The path that it concerns.
    pub path: Vec<u8>,
    /// The reason.
    #[source]
    pub problem: CommandProblem,
}

impl CommandError {
    pub(super) fn of(command: &Command<'_>, problem: impl Into<CommandProblem>) -> Self {
        let path = command.path().unwrap_or_default().to_vec();
        let action = Action::Command(command.kind());
        Self { action, path, problem: problem.into() }
    }
}

/// Why a command cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandProblem {
    /// A path that does not lead down from the root of the subvolume.
    #[error("the path {}: {reason}", Readable(path))]
    Path {
        /// The path.
        path: Vec<u8>,
        /// The reason.
        reason: &'static str,
    },
    /// No subvolume has begun.
    #[error("it is not in a subvolume")]
    NoSubvolume,
    /// The parent or clone source has not been received here.
    #[error("there is no subvolume with the uuid {uuid} here: receive that one first")]
    NotReceived {
        /// Uuid of the subvolume that the stream builds on.
        uuid: Uuid,
    },
    /// The parent or clone source is no snapshot.
    #[error(
        "the subvolume with the uuid {uuid} is writable here, and was not received: a stream can \
         only build on a read-only one"
    )]
    Writable {
        /// Uuid of the subvolume that the stream builds on.
        uuid: Uuid,
    },
    /// The command is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The path leads to another inode than the one that the command is for.
    #[error("another file has taken its place meanwhile: run the command again")]
    Replaced,
    /// An earlier command should have made the inode, and failed.
    #[error("it was not made")]
    NotMade,
    /// The command needs an unsupported feature.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// Data does not decompress.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// The file system refuses.
    #[error(transparent)]
    Filesystem(#[from] larder_filesystem::Error),
    /// The kernel refuses.
    #[error("{}", in_words(.0))]
    Io(#[from] io::Error),
}

/// Bytes of a stream, safe for a terminal.
struct Readable<'a>(&'a [u8]);

impl std::fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(the root)");
        }
        String::from_utf8_lossy(self.0).escape_debug().fmt(f)
    }
}
