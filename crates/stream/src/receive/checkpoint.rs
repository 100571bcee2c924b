//! Checkpoints: where an interrupted receive goes on.
//!
//! # Invariants
//! - The checkpoint at a byte of the stream is a read-only snapshot of the unfinished subvolume: all
//!   commands before that byte are applied in it, and none after.
//! - No checkpoint is taken after a command that could not be applied.

use std::io::{self, Read};

use crate::wire::{Reader, StreamError};

/// The start of the names of all checkpoints.
const PREFIX: &str = ".larder-received-";

/// The checkpoints of one stream, in the directory that it is received in. The caller removes those
/// that it no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// A number for the stream, which is part of their names.
    pub stream: u64,
    /// The receiver takes one after each so many bytes, and one when it is stopped or its input
    /// fails.
    pub every_bytes: u64,
    /// Begin with the checkpoint at this byte. The input then is the [`prologue`] of the stream, and
    /// the stream from this byte on.
    pub from: Option<u64>,
}

impl Checkpoints {
    /// The name of the checkpoint at byte `position` of the stream with the number `stream`.
    pub fn name(stream: u64, position: u64) -> String {
        format!("{PREFIX}{stream:016x}-{position}")
    }

    /// The position of the checkpoint of the stream `stream` that has this name.
    pub fn position(stream: u64, name: &[u8]) -> Option<u64> {
        let (_, position) = str::from_utf8(name).ok()?.rsplit_once('-')?;
        let position = position.parse().ok()?;
        (Self::name(stream, position).as_bytes() == name).then_some(position)
    }
}

/// The header and the first command of the stream in `input`.
pub fn prologue(input: &mut impl Read) -> Result<Vec<u8>, StreamError> {
    let mut reader = Reader::new(Recorded { input, read: Vec::new() });
    reader.next()?;
    Ok(reader.into_input().read)
}

/// An input, and what was read of it.
struct Recorded<'a, R> {
    input: &'a mut R,
    read: Vec<u8>,
}

impl<R: Read> Read for Recorded<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(into)?;
        self.read.extend_from_slice(&into[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checkpoints_are_read_as_they_are_written() {
        let name = Checkpoints::name(7, 1 << 40);
        assert_eq!(name, ".larder-received-0000000000000007-1099511627776");
        assert_eq!(Checkpoints::position(7, name.as_bytes()), Some(1 << 40));
        assert_eq!(Checkpoints::position(8, name.as_bytes()), None);
        for name in ["", "-", "x-1", ".larder-received-0000000000000007-01"] {
            assert_eq!(Checkpoints::position(7, name.as_bytes()), None, "{name}");
        }
    }
}
