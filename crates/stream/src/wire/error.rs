//! The errors of streams, and their offsets.

use std::io;

use larder_platform::errno::in_words;

use super::attribute::Attribute;

/// A stream that cannot be read, and the offset.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset} of the stream: {problem}")]
pub struct StreamError {
    /// Bytes from the start of the input to the header, command or attribute that is wrong.
    pub offset: u64,
    /// The error.
    #[source]
    pub problem: StreamProblem,
}

/// An error in a stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamProblem {
    /// The input fails.
    #[error("it cannot be read: {}", in_words(.0))]
    Io(#[from] io::Error),
    /// The input ends in the middle.
    #[error("it ends before the stream does")]
    CutShort,
    /// The magic is missing.
    #[error("this is not a btrfs stream")]
    NoStream,
    /// The version is not known.
    #[error("version {0} of the stream is not supported")]
    UnknownVersion(u32),
    /// A command is longer than the version lets it be.
    #[error("a command of {len} bytes, where {longest} are the most")]
    CommandTooLong {
        /// Bytes of its attributes.
        len: usize,
        /// The most that there may be.
        longest: usize,
    },
    /// The checksum of a command is wrong.
    #[error("the checksum of the command is {expected:#010x}, not {found:#010x} as computed")]
    Checksum {
        /// The checksum in the command.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// There is no command of this number in this version.
    #[error("command {0} is not known in this version of the stream")]
    UnknownCommand(u16),
    /// There is no attribute of this number.
    #[error("attribute {0} is not known")]
    UnknownAttribute(u16),
    /// An attribute reaches past the end of its command.
    #[error("an attribute is longer than the command")]
    AttributeTooLong,
    /// An attribute is there twice.
    #[error("the command has two attributes \"{}\"", .0.name())]
    TwoOf(Attribute),
    /// An attribute that the command needs is not there.
    #[error("the command has no attribute \"{}\"", .0.name())]
    MissingAttribute(Attribute),
    /// A number, time or uuid has the wrong length.
    #[error("attribute \"{}\" has {len} bytes, not {expected}", .attribute.name())]
    AttributeLength {
        /// The attribute.
        attribute: Attribute,
        /// Its length in bytes.
        len: usize,
        /// The length in bytes that it should have.
        expected: usize,
    },
}

/// A command that is too long for its version of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command {command} is too long for the version of the stream")]
pub struct TooLong {
    /// Its name.
    pub command: &'static str,
}
