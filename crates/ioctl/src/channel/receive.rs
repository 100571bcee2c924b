//! The messages of receiving.

use std::io;

use super::invalid;

const STOP_AT_END: u64 = 1;
const FORCE_DECOMPRESS: u64 = 2;
const CHECKPOINTS: u64 = 4;
const FROM_CHECKPOINT: u64 = 8;

const BEGINS_SUBVOLUME: u8 = 1;
const BEGINS_SNAPSHOT: u8 = 2;
const FAILED: u8 = 3;
const READ: u8 = 4;
const REMOVED: u8 = 5;
const CHECKPOINT: u8 = 6;

/// The options for receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Stop at the end of the first stream.
    pub stop_at_end: bool,
    /// Stop after this number of commands that could not be applied; 0 for never.
    pub max_errors: u64,
    /// Write data that is sent compressed as plain data.
    pub force_decompress: bool,
    /// Take checkpoints.
    pub checkpoints: Option<CheckpointRequest>,
}

/// The checkpoints that the server takes while it receives one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// The number of the stream.
    pub stream: u64,
    /// Take one after so many bytes.
    pub every_bytes: u64,
    /// Begin with the one at this position.
    pub from: Option<u64>,
}

/// A report; the body of an [`Event`](super::Kind::Event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveNews<'a> {
    /// A subvolume begins.
    Begins {
        /// Its name.
        name: &'a [u8],
        /// Whether it begins as a snapshot of its parent.
        is_snapshot: bool,
    },
    /// A command could not be applied, for this reason.
    Failed(&'a [u8]),
    /// The number of bytes read so far.
    Read(u64),
    /// The number of names removed so far, while a directory is removed with all that is in it.
    Removed(u64),
    /// There is a checkpoint at this byte of the stream.
    Checkpoint(u64),
}

/// The result: the body of [`Done`](super::Kind::Done).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveReply {
    /// All was received.
    Received {
        /// Bytes of the streams.
        stream_bytes: u64,
        /// Subvolumes that were finished.
        subvolumes: u64,
        /// Commands that were applied.
        commands: u64,
    },
    /// It failed.
    Failed {
        /// Name of the subvolume that was begun and not finished.
        unfinished: Option<Vec<u8>>,
        /// The reason.
        message: String,
    },
}

impl ReceiveRequest {
    pub(super) fn body(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let from = self.checkpoints.and_then(|checkpoints| checkpoints.from);
        let flags = flag(self.stop_at_end, STOP_AT_END)
            | flag(self.force_decompress, FORCE_DECOMPRESS)
            | flag(self.checkpoints.is_some(), CHECKPOINTS)
            | flag(from.is_some(), FROM_CHECKPOINT);
        let (stream, every_bytes) = self
            .checkpoints
            .map_or((0, 0), |checkpoints| (checkpoints.stream, checkpoints.every_bytes));
        let words = [flags, self.max_errors, stream, every_bytes, from.unwrap_or_default()];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn parse(words: &[u64]) -> io::Result<Self> {
        let &[flags, max_errors, stream, every_bytes, from] = words else {
            return Err(invalid("a request to receive of another length"));
        };
        if flags & !(STOP_AT_END | FORCE_DECOMPRESS | CHECKPOINTS | FROM_CHECKPOINT) != 0 {
            return Err(invalid("a request with unknown flags"));
        }
        let from = (flags & FROM_CHECKPOINT != 0).then_some(from);
        let checkpoints = CheckpointRequest { stream, every_bytes, from };
        Ok(Self {
            stop_at_end: flags & STOP_AT_END != 0,
            max_errors,
            force_decompress: flags & FORCE_DECOMPRESS != 0,
            checkpoints: (flags & CHECKPOINTS != 0).then_some(checkpoints),
        })
    }
}

impl<'a> ReceiveNews<'a> {
    /// The body of its frame.
    pub fn body(&self) -> Vec<u8> {
        match self {
            Self::Begins { name, is_snapshot: false } => [&[BEGINS_SUBVOLUME], *name].concat(),
            Self::Begins { name, is_snapshot: true } => [&[BEGINS_SNAPSHOT], *name].concat(),
            Self::Failed(text) => [&[FAILED], *text].concat(),
            Self::Read(bytes) => [&[READ], &bytes.to_le_bytes()[..]].concat(),
            Self::Removed(names) => [&[REMOVED], &names.to_le_bytes()[..]].concat(),
            Self::Checkpoint(byte) => [&[CHECKPOINT], &byte.to_le_bytes()[..]].concat(),
        }
    }

    /// Parses the body of a frame.
    pub fn parse(body: &'a [u8]) -> io::Result<Self> {
        match body {
            [BEGINS_SUBVOLUME, name @ ..] => Ok(Self::Begins { name, is_snapshot: false }),
            [BEGINS_SNAPSHOT, name @ ..] => Ok(Self::Begins { name, is_snapshot: true }),
            [FAILED, text @ ..] => Ok(Self::Failed(text)),
            [READ, number @ ..] => Ok(Self::Read(word(number)?)),
            [REMOVED, number @ ..] => Ok(Self::Removed(word(number)?)),
            [CHECKPOINT, number @ ..] => Ok(Self::Checkpoint(word(number)?)),
            _ => Err(invalid("a report of an unknown kind")),
        }
    }
}

impl ReceiveReply {
    /// The body of its frame.
    pub fn body(&self) -> Vec<u8> {
        match self {
            Self::Received { stream_bytes, subvolumes, commands } => {
                let words = [0, *stream_bytes, *subvolumes, *commands];
                words.map(u64::to_le_bytes).concat()
            }
            Self::Failed { unfinished, message } => {
                // A name has no zeros, and is never empty.
                let name = unfinished.as_deref().unwrap_or_default();
                [&1_u64.to_le_bytes()[..], name, b"\0", message.as_bytes()].concat()
            }
        }
    }

    /// Parses the body of a frame.
    pub fn parse(body: &[u8]) -> io::Result<Self> {
        let (tag, rest) = body.split_at_checked(8).ok_or(invalid("a reply that is too short"))?;
        if word(tag)? == 0 {
            let (words, _) = rest.as_chunks::<8>();
            let &[stream_bytes, subvolumes, commands] = words else {
                return Err(invalid("a reply of another length"));
            };
            let [stream_bytes, subvolumes, commands] =
                [stream_bytes, subvolumes, commands].map(u64::from_le_bytes);
            return Ok(Self::Received { stream_bytes, subvolumes, commands });
        }
        let mut parts = rest.splitn(2, |byte| *byte == 0);
        let (Some(name), Some(message)) = (parts.next(), parts.next()) else {
            return Err(invalid("a reply without a message"));
        };
        let unfinished = (!name.is_empty()).then(|| name.to_vec());
        Ok(Self::Failed { unfinished, message: String::from_utf8_lossy(message).into_owned() })
    }
}

fn word(bytes: &[u8]) -> io::Result<u64> {
    let bytes = bytes.try_into().map_err(|_| invalid("a number of another length"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_and_replies_are_read_as_they_were_written() {
        for news in [
            ReceiveNews::Begins { name: b"monday", is_snapshot: false },
            ReceiveNews::Begins { name: b"tuesday", is_snapshot: true },
            ReceiveNews::Failed(b"no bread"),
            ReceiveNews::Read(1 << 40),
            ReceiveNews::Removed(1 << 40),
            ReceiveNews::Checkpoint(1 << 40),
        ] {
            assert_eq!(ReceiveNews::parse(&news.body()).unwrap(), news);
        }
        for reply in [
            ReceiveReply::Received { stream_bytes: 1, subvolumes: 2, commands: 3 },
            ReceiveReply::Failed { unfinished: None, message: String::new() },
            ReceiveReply::Failed { unfinished: Some(b"a".to_vec()), message: "no".into() },
        ] {
            assert_eq!(ReceiveReply::parse(&reply.body()).unwrap(), reply);
        }
        for body in [&b""[..], b"\x07", b"\x04abc"] {
            assert!(ReceiveNews::parse(body).is_err());
        }
        for body in [&b""[..], &[0; 8], &[0; 31], b"\x01\0\0\0\0\0\0\0name"] {
            assert!(ReceiveReply::parse(body).is_err());
        }
    }
}
