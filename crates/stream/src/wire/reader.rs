//! Reading streams that may be hostile.
//!
//! # Invariants
//! - The longest command of the version bounds memory, which grows only with received bytes.
//! - No attribute of a command is parsed before the command's checksum was checked.

use std::io::{ErrorKind, Read};

use super::attribute::{Attribute, Attributes};
use super::checksum::checksum;
use super::command::Command;
use super::error::{StreamError, StreamProblem};
use super::version::Version;
use super::{CHECKSUM_RANGE, COMMAND_HEADER_LEN, MAGIC, STREAM_HEADER_LEN};

/// Reads the commands of a stream, and of further streams in the same input.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Bytes of the streams that lie before what is read next.
    offset: u64,
    /// The version of the current stream; `None` before its header.
    version: Option<Version>,
    command: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// A reader of the streams in `input`. It reads in small pieces, so `input` should be buffered.
    pub fn new(input: R) -> Self {
        Self { input, offset: 0, version: None, command: Vec::new() }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Sets the offset in the stream of the byte that the input gives next.
    pub(crate) fn go_on_at(&mut self, offset: u64) {
        self.offset = offset;
    }

    pub(crate) fn into_input(self) -> R {
        self.input
    }

    /// The version of the stream that is being read; `None` before a stream and between two.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The next command: [`Command::End`] at the end of a stream, and `None` at the end of the
    /// input, which may come only there. After an error nothing more can be read.
    #[allow(clippy::should_implement_trait, reason = "it lends what it read")]
    pub fn next(&mut self) -> Result<Option<Command<'_>>, StreamError> {
        let version = match self.version {
            Some(version) => version,
            None => match self.header()? {
                Some(version) => version,
                None => return Ok(None),
            },
        };
        self.version = Some(version);
        let start = self.offset;
        self.read_command(version).map_err(|problem| StreamError { offset: start, problem })?;
        let command = parse(&self.command, start, version)?;
        if command == Command::End {
            self.version = None;
        }
        Ok(Some(command))
    }

    /// Reads the header of a stream, unless the input ends here.
    fn header(&mut self) -> Result<Option<Version>, StreamError> {
        let offset = self.offset;
        let wrong = |problem| StreamError { offset, problem };
        self.fill(0, STREAM_HEADER_LEN).map_err(wrong)?;
        if self.command.is_empty() {
            return Ok(None);
        }
        let Some((magic, number)) = self.command.split_at_checked(MAGIC.len()) else {
            return Err(wrong(StreamProblem::NoStream));
        };
        if magic != MAGIC {
            return Err(wrong(StreamProblem::NoStream));
        }
        let number = number.try_into().map_err(|_| wrong(StreamProblem::CutShort))?;
        let number = u32::from_le_bytes(number);
        let version = Version::from_number(number);
        version.map(Some).ok_or_else(|| wrong(StreamProblem::UnknownVersion(number)))
    }

    /// Reads a whole command and checks its checksum.
    fn read_command(&mut self, version: Version) -> Result<(), StreamProblem> {
        self.fill(0, COMMAND_HEADER_LEN)?;
        let header = self.command.first_chunk().ok_or(StreamProblem::CutShort)?;
        let (len, _, expected) = split_header(header);
        let longest = version.longest_command_bytes();
        if len > longest {
            return Err(StreamProblem::CommandTooLong { len, longest });
        }
        self.fill(COMMAND_HEADER_LEN, len)?;
        if self.command.len() != COMMAND_HEADER_LEN + len {
            return Err(StreamProblem::CutShort);
        }
        self.command[CHECKSUM_RANGE].fill(0);
        let found = checksum(&self.command);
        if found != expected {
            return Err(StreamProblem::Checksum { expected, found });
        }
        Ok(())
    }

    /// Keeps `keep` bytes of the buffer and appends `len` bytes of the input, or less at its end.
    fn fill(&mut self, keep: usize, len: usize) -> Result<(), StreamProblem> {
        self.command.truncate(keep);
        loop {
            let missing = (keep + len - self.command.len()) as u64;
            let read = (&mut self.input).take(missing).read_to_end(&mut self.command);
            match read {
                Ok(read) => {
                    self.offset += read as u64;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Length of the attributes, number and checksum of a command.
pub(super) fn split_header(header: &[u8; COMMAND_HEADER_LEN]) -> (usize, u16, u32) {
    let [l0, l1, l2, l3, n0, n1, c0, c1, c2, c3] = *header;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    (len, u16::from_le_bytes([n0, n1]), u32::from_le_bytes([c0, c1, c2, c3]))
}

/// Parses a whole command, which was read at `start`.
pub(super) fn parse(
    bytes: &[u8],
    start: u64,
    version: Version,
) -> Result<Command<'_>, StreamError> {
    let wrong = |offset, problem| StreamError { offset, problem };
    let Some((header, mut rest)) = bytes.split_first_chunk() else {
        return Err(wrong(start, StreamProblem::CutShort));
    };
    let (_, number, _) = split_header(header);
    if number > version.last_command() {
        return Err(wrong(start, StreamProblem::UnknownCommand(number)));
    }
    let mut attributes = Attributes::new();
    while !rest.is_empty() {
        let at = start + (bytes.len() - rest.len()) as u64;
        let (attribute, value, behind) =
            split_attribute(rest, version).map_err(|problem| wrong(at, problem))?;
        if !attributes.insert(attribute, value) {
            return Err(wrong(at, StreamProblem::TwoOf(attribute)));
        }
        rest = behind;
    }
    Command::from_attributes(number, &attributes).map_err(|problem| wrong(start, problem))
}

/// The attribute at the start of `bytes`, its value, and the rest.
fn split_attribute(
    bytes: &[u8],
    version: Version,
) -> Result<(Attribute, &[u8], &[u8]), StreamProblem> {
    let (number, rest) = split_u16(bytes)?;
    let unknown = StreamProblem::UnknownAttribute(number);
    let attribute = Attribute::from_number(number).ok_or(unknown)?;
    if attribute == Attribute::Data && version.data_takes_the_rest() {
        return Ok((attribute, rest, &[]));
    }
    let (len, rest) = split_u16(rest)?;
    let split = rest.split_at_checked(len.into());
    let (value, behind) = split.ok_or(StreamProblem::AttributeTooLong)?;
    Ok((attribute, value, behind))
}

fn split_u16(bytes: &[u8]) -> Result<(u16, &[u8]), StreamProblem> {
    let (number, rest) = bytes.split_first_chunk().ok_or(StreamProblem::AttributeTooLong)?;
    Ok((u16::from_le_bytes(*number), rest))
}
