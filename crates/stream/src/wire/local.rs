//! Commands between processes of one machine. They lie one after the other as in version 2 of the
//! stream, without its header and without checksums.

use super::COMMAND_HEADER_LEN;
use super::command::Command;
use super::error::{StreamError, StreamProblem, TooLong};
use super::reader::{parse, split_header};
use super::version::Version;
use super::writer::encode_unchecked;

const VERSION: Version = Version::V2;

/// Appends a command to `out`. After an error `out` is unchanged.
pub fn encode_local(command: &Command<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    encode_unchecked(command, VERSION, out)
}

/// The commands in a piece of memory. After an error there are no more.
#[derive(Debug)]
pub struct LocalCommands<'b> {
    rest: &'b [u8],
    /// The offset of the rest, for errors.
    offset: u64,
}

impl<'b> LocalCommands<'b> {
    /// The commands in `bytes`, which follow `offset` other bytes.
    pub fn new(bytes: &'b [u8], offset: u64) -> Self {
        Self { rest: bytes, offset }
    }

    fn split(&mut self) -> Result<Command<'b>, StreamError> {
        let cut_short = StreamError { offset: self.offset, problem: StreamProblem::CutShort };
        let Some(header) = self.rest.first_chunk() else { return Err(cut_short) };
        let (len, _, _) = split_header(header);
        let split = self.rest.split_at_checked(COMMAND_HEADER_LEN + len);
        let Some((bytes, rest)) = split else { return Err(cut_short) };
        let command = parse(bytes, self.offset, VERSION)?;
        self.rest = rest;
        self.offset += bytes.len() as u64;
        Ok(command)
    }
}

impl<'b> Iterator for LocalCommands<'b> {
    type Item = Result<Command<'b>, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let command = self.split();
        if command.is_err() {
            self.rest = &[];
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_were_written() {
        let data = vec![3; 100_000];
        let commands = [
            Command::Mkfile { path: b"bread", ino: 0 },
            Command::Write { path: b"bread", offset: 7, data: &data },
            Command::Chmod { path: b"bread", mode: 0o640 },
        ];
        let mut bytes = Vec::new();
        for command in &commands {
            encode_local(command, &mut bytes).unwrap();
        }
        let read: Result<Vec<_>, _> = LocalCommands::new(&bytes, 0).collect();
        assert_eq!(read.unwrap(), commands);
    }

    #[test]
    fn an_error_names_its_place_and_ends_the_commands() {
        let mut bytes = Vec::new();
        encode_local(&Command::Unlink { path: b"a" }, &mut bytes).unwrap();
        let whole = bytes.len();
        encode_local(&Command::Unlink { path: b"b" }, &mut bytes).unwrap();
        for len in whole + 1..bytes.len() {
            let mut commands = LocalCommands::new(&bytes[..len], 100);
            assert!(commands.next().unwrap().is_ok());
            let error = commands.next().unwrap().unwrap_err();
            assert_eq!(error.offset, 100 + whole as u64);
            assert!(matches!(error.problem, StreamProblem::CutShort));
            assert!(commands.next().is_none());
        }
    }

    #[test]
    fn a_command_that_is_too_long_leaves_nothing_behind() {
        let mut bytes = vec![1, 2];
        let data = vec![0; 2 << 20];
        let command = Command::Write { path: b"bread", offset: 0, data: &data };
        assert!(encode_local(&command, &mut bytes).is_err());
        assert_eq!(bytes, [1, 2]);
    }
}
