//! The stream as bytes: a header, then commands, each a header with a checksum and attributes
//! (`btrfs-stream`, versions 1 to 3).

mod action;
mod attribute;
mod checksum;
mod command;
mod error;
mod follow;
mod local;
mod reader;
mod version;
mod writer;

pub use action::Action;
pub use attribute::{Attribute, Timestamp};
pub use command::{Command, CommandKind};
pub use error::{StreamError, StreamProblem, TooLong};
pub use follow::{Follower, Work};
pub use local::{Change, LocalChanges, Original, encode_local};
pub use reader::Reader;
pub use version::Version;
pub(crate) use writer::header as stream_header;
pub use writer::{Writer, encode};

/// The start of every stream (`BTRFS_SEND_STREAM_MAGIC`, with its zero).
const MAGIC: [u8; 13] = *b"btrfs-stream\0";
/// The magic and the version (`struct btrfs_stream_header`).
const STREAM_HEADER_LEN: usize = MAGIC.len() + 4;
/// Length of the attributes, number of the command, checksum (`struct btrfs_cmd_header`).
const COMMAND_HEADER_LEN: usize = 10;
/// The place of the checksum in a command's header.
const CHECKSUM_RANGE: std::ops::Range<usize> = 6..10;
