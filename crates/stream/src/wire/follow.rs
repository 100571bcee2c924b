//! Following a stream as it passes by, without delaying it.
//!
//! # Invariants
//! - It keeps no more than a command's header.
//! - It ignores anything that is not a stream.

use super::command::Command;
use super::reader::{parse, split_header};
use super::version::Version;
use super::{COMMAND_HEADER_LEN, STREAM_HEADER_LEN};

/// Reads a stream that passes in pieces.
#[derive(Debug)]
pub struct Follower {
    version: Version,
    /// Bytes before the next header of a command.
    ahead: usize,
    /// The first part of a header that is cut in two.
    header: Vec<u8>,
}

/// The inode of a command that sets its content or attributes. A sender visits each inode once, so
/// this is its position; other commands, for names and directories, may concern any inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// The path of the inode.
    pub path: &'a [u8],
    /// Offset in its content, in bytes; 0 for anything else.
    pub offset: u64,
}

impl Follower {
    /// Follows a stream of this version from its first byte on. A stream that continues another has
    /// no header.
    pub fn new(version: Version, has_header: bool) -> Self {
        let ahead = if has_header { STREAM_HEADER_LEN } else { 0 };
        Self { version, ahead, header: Vec::with_capacity(COMMAND_HEADER_LEN) }
    }

    /// Takes the next piece of the stream. Returns the last work that is completely in this piece.
    pub fn pass<'a>(&mut self, piece: &'a [u8]) -> Option<Work<'a>> {
        let mut last = None;
        let mut at = 0;
        loop {
            let skipped = self.ahead.min(piece.len() - at);
            self.ahead -= skipped;
            at += skipped;
            let rest = &piece[at..];
            let begins_here = self.header.is_empty();
            let missing = COMMAND_HEADER_LEN - self.header.len();
            self.header.extend(rest.iter().take(missing));
            let Some(header) = self.header.first_chunk() else { break };
            let (len, number, _) = split_header(header);
            if begins_here && is_work(number) {
                last = rest.get(..COMMAND_HEADER_LEN.saturating_add(len)).or(last);
            }
            self.header.clear();
            self.ahead = len;
            at += missing;
        }
        work_of(parse(last?, 0, self.version).ok()?)
    }
}

/// Whether a command of this number may set an inode's content or attributes: from extended
/// attributes to owners, and the later ones after the end command.
fn is_work(number: u16) -> bool {
    matches!(number, 13..=19 | 22..)
}

fn work_of(command: Command<'_>) -> Option<Work<'_>> {
    let offset = match command {
        Command::Write { offset, .. }
        | Command::Clone { offset, .. }
        | Command::UpdateExtent { offset, .. }
        | Command::Fallocate { offset, .. }
        | Command::EncodedWrite { offset, .. } => offset,
        _ => 0,
    };
    command.path().map(|path| Work { path, offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    /// A stream of files with two bytes at an offset each.
    fn stream(version: Version, files: u64) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), version).unwrap();
        for number in 0..files {
            let path = number.to_string();
            let path = path.as_bytes();
            writer.write(&Command::Mkfile { path, ino: 300 + number }).unwrap();
            writer.write(&Command::Write { path, offset: number * 10, data: b"ab" }).unwrap();
            writer.write(&Command::Rename { path, to: b"elsewhere" }).unwrap();
        }
        writer.write(&Command::End).unwrap();
        writer.into_inner()
    }

    #[test]
    fn the_last_work_is_seen_however_the_stream_is_cut() {
        for version in [Version::V1, Version::V2] {
            let stream = stream(version, 20);
            for piece_bytes in 1..=stream.len() {
                let mut follower = Follower::new(version, true);
                let mut seen = Vec::new();
                for piece in stream.chunks(piece_bytes) {
                    seen.extend(follower.pass(piece).map(|work| work.offset));
                }
                assert!(seen.is_sorted(), "{piece_bytes}: {seen:?}");
                if piece_bytes == stream.len() {
                    assert_eq!(seen, [190]);
                }
            }
        }
    }

    #[test]
    fn a_stream_may_go_on_without_a_header() {
        let stream = stream(Version::V1, 3);
        let work = Follower::new(Version::V1, false).pass(&stream[STREAM_HEADER_LEN..]);
        assert_eq!(work, Some(Work { path: b"2", offset: 20 }));
    }

    #[test]
    fn other_input_is_ignored() {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for byte in [0, 1, 0xff] {
            let mut follower = Follower::new(Version::V2, true);
            assert_eq!(follower.pass(&[byte; 1000]), None);
            assert_eq!(follower.pass(&noise), None);
        }
    }
}
