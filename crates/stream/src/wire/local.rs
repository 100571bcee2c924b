//! Changes that a process of this machine asks for: the commands of streams, and what no stream can
//! say. They lie one after the other, as commands in version 2 of the stream, without its header
//! and without checksums.
//!
//! # Invariants
//! - A [`Command`] cannot express what only a [`Change`] may say, and a [`Reader`](super::Reader)
//!   of streams makes commands only.

use super::COMMAND_HEADER_LEN;
use super::action::Action;
use super::command::Command;
use super::error::{StreamError, StreamProblem, TooLong};
use super::reader::{parse, split_header};
use super::version::Version;
use super::writer::encode_unchecked;

const VERSION: Version = Version::V2;
/// The number of a copy, which no command of a stream can have.
const COPY: u16 = u16::MAX;
/// The number of a command for a certain inode, likewise.
const ON: u16 = u16::MAX - 1;

/// A change that a process of this machine asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// As a stream says it.
    Command(Command<'a>),
    /// The same, if its path leads to this inode when it is applied. Otherwise it fails.
    On {
        /// The inode.
        inode: Original,
        /// The command.
        command: Command<'a>,
    },
    /// Gives a file, which is new and empty, the content of another file of the file system.
    Copy {
        /// The new file.
        path: &'a [u8],
        /// The other file.
        original: Original,
    },
}

/// An inode, by the id of its subvolume and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// Id of the subvolume.
    pub subvolume: u64,
    /// Number of the inode.
    pub inode: u64,
}

impl<'a> Change<'a> {
    /// The path of the inode that changes; empty for the directory that paths start at.
    pub fn path(&self) -> &'a [u8] {
        match *self {
            Self::Command(command) | Self::On { command, .. } => command.path().unwrap_or_default(),
            Self::Copy { path, .. } => path,
        }
    }

    /// Its command, unless it is a copy.
    pub fn command(&self) -> Option<Command<'a>> {
        match *self {
            Self::Command(command) | Self::On { command, .. } => Some(command),
            Self::Copy { .. } => None,
        }
    }

    /// The same change by another command, unless it is a copy.
    #[must_use]
    pub fn by(self, command: Command<'a>) -> Self {
        match self {
            Self::Command(_) => Self::Command(command),
            Self::On { inode, .. } => Self::On { inode, command },
            Self::Copy { .. } => self,
        }
    }

    /// What it does, for messages.
    pub fn action(&self) -> Action {
        match self {
            Self::Command(command) | Self::On { command, .. } => Action::Command(command.kind()),
            Self::Copy { .. } => Action::Copy,
        }
    }
}

impl<'a> From<Command<'a>> for Change<'a> {
    fn from(command: Command<'a>) -> Self {
        Self::Command(command)
    }
}

/// Appends a change to `out`. After an error `out` is unchanged.
pub fn encode_local(change: &Change<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    match *change {
        Change::Command(command) => encode_unchecked(&command, VERSION, out),
        Change::On { inode, command } => {
            let mut encoded = Vec::new();
            encode_unchecked(&command, VERSION, &mut encoded)?;
            encode_with(inode, &encoded, (ON, command.kind().name()), out)
        }
        Change::Copy { path, original } => {
            encode_with(original, path, (COPY, Action::Copy.name()), out)
        }
    }
}

/// Appends a change of this number that consists of an inode and of bytes.
fn encode_with(
    Original { subvolume, inode }: Original,
    bytes: &[u8],
    (number, command): (u16, &'static str),
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let len = u32::try_from(2 * size_of::<u64>() + bytes.len());
    let len = len.map_err(|_| TooLong { command })?;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&subvolume.to_le_bytes());
    out.extend_from_slice(&inode.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// The changes in a piece of memory. After an error there are no more.
#[derive(Debug)]
pub struct LocalChanges<'b> {
    rest: &'b [u8],
    /// The offset of the rest, for errors.
    offset: u64,
}

impl<'b> LocalChanges<'b> {
    /// The changes in `bytes`, which follow `offset` other bytes.
    pub fn new(bytes: &'b [u8], offset: u64) -> Self {
        Self { rest: bytes, offset }
    }

    fn split(&mut self) -> Result<Change<'b>, StreamError> {
        let cut_short = StreamError { offset: self.offset, problem: StreamProblem::CutShort };
        let Some(header) = self.rest.first_chunk() else { return Err(cut_short) };
        let (len, number, _) = split_header(header);
        let split = self.rest.split_at_checked(COMMAND_HEADER_LEN + len);
        let Some((bytes, rest)) = split else { return Err(cut_short) };
        let body = &bytes[COMMAND_HEADER_LEN..];
        let change = match number {
            COPY => {
                let (original, path) = parse_with(body).ok_or(cut_short)?;
                Change::Copy { path, original }
            }
            ON => {
                let (inode, bytes) = parse_with(body).ok_or(cut_short)?;
                let offset = self.offset + (COMMAND_HEADER_LEN + body.len() - bytes.len()) as u64;
                Change::On { inode, command: parse(bytes, offset, VERSION)? }
            }
            _ => Change::Command(parse(bytes, self.offset, VERSION)?),
        };
        self.rest = rest;
        self.offset += bytes.len() as u64;
        Ok(change)
    }
}

/// An inode, and the bytes after it. `None` if it is cut short.
fn parse_with(bytes: &[u8]) -> Option<(Original, &[u8])> {
    let (subvolume, rest) = bytes.split_first_chunk()?;
    let (inode, rest) = rest.split_first_chunk()?;
    let (subvolume, inode) = (u64::from_le_bytes(*subvolume), u64::from_le_bytes(*inode));
    Some((Original { subvolume, inode }, rest))
}

impl<'b> Iterator for LocalChanges<'b> {
    type Item = Result<Change<'b>, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let change = self.split();
        if change.is_err() {
            self.rest = &[];
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reader::Reader;
    use crate::wire::writer::Writer;

    #[test]
    fn changes_are_read_as_they_were_written() {
        let data = vec![3; 100_000];
        let original = Original { subvolume: 5, inode: u64::MAX };
        let changes = [
            Change::Command(Command::Mkfile { path: b"bread", ino: 0 }),
            Change::Command(Command::Write { path: b"bread", offset: 7, data: &data }),
            Change::Copy { path: b"bread", original },
            Change::Command(Command::Chmod { path: b"bread", mode: 0o640 }),
            Change::On { inode: original, command: Command::Chmod { path: b"bread", mode: 0o640 } },
        ];
        let mut bytes = Vec::new();
        for change in &changes {
            encode_local(change, &mut bytes).unwrap();
        }
        let read: Result<Vec<_>, _> = LocalChanges::new(&bytes, 0).collect();
        assert_eq!(read.unwrap(), changes);
    }

    #[test]
    fn an_error_names_its_place_and_ends_the_changes() {
        let unlink = Change::Command(Command::Unlink { path: b"a" });
        let copy = Change::Copy { path: b"", original: Original { subvolume: 5, inode: 257 } };
        let on = Change::On {
            inode: Original { subvolume: 5, inode: 257 },
            command: Command::Unlink { path: b"a" },
        };
        for last in [unlink, copy, on] {
            let mut bytes = Vec::new();
            encode_local(&unlink, &mut bytes).unwrap();
            let whole = bytes.len();
            encode_local(&last, &mut bytes).unwrap();
            for len in whole + 1..bytes.len() {
                let mut changes = LocalChanges::new(&bytes[..len], 100);
                assert!(changes.next().unwrap().is_ok());
                let error = changes.next().unwrap().unwrap_err();
                assert!(error.offset >= 100 + whole as u64);
                assert!(matches!(error.problem, StreamProblem::CutShort));
                assert!(changes.next().is_none());
            }
        }
    }

    #[test]
    fn a_copy_without_numbers_is_cut_short() {
        for len in 0..16_u32 {
            let mut bytes = [&len.to_le_bytes()[..], &COPY.to_le_bytes(), &[0; 4]].concat();
            bytes.resize(COMMAND_HEADER_LEN + len as usize, 7);
            let error = LocalChanges::new(&bytes, 0).next().unwrap().unwrap_err();
            assert!(matches!(error.problem, StreamProblem::CutShort));
        }
    }

    #[test]
    fn a_change_that_is_too_long_leaves_nothing_behind() {
        let mut bytes = vec![1, 2];
        let data = vec![0; 2 << 20];
        let command = Command::Write { path: b"bread", offset: 0, data: &data };
        assert!(encode_local(&command.into(), &mut bytes).is_err());
        assert_eq!(bytes, [1, 2]);
    }

    #[test]
    fn no_stream_has_a_copy() {
        for version in [Version::V1, Version::V2, Version::V3] {
            let mut stream = Writer::new(Vec::new(), version).unwrap().into_inner();
            let at = stream.len();
            let original = Original { subvolume: 5, inode: 257 };
            encode_local(&Change::Copy { path: b"bread", original }, &mut stream).unwrap();
            let checksum = crate::wire::checksum::checksum(&stream[at..]);
            stream[at..][crate::wire::CHECKSUM_RANGE].copy_from_slice(&checksum.to_le_bytes());
            let error = Reader::new(&*stream).next().unwrap_err();
            assert!(matches!(error.problem, StreamProblem::UnknownCommand(COPY)), "{error}");
        }
    }
}
