//! The requests of a channel.

use std::io;

use super::frame::Kind;
use super::{ReceiveRequest, WalkRequest, invalid};

/// The most clone sources.
const MOST_CLONE_SOURCES: usize = 4096;

const COMPRESSED_DATA: u64 = 1;
const NO_DATA: u64 = 2;
const BEGINS_STREAM: u64 = 4;
const ENDS_STREAM: u64 = 8;

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Send the snapshot whose root is the inode of the token. The stream comes as [`Data`](Kind::Data), and at times an
    /// [`Event`](Kind::Event) of 4 bytes with the progress in millionths. The reply is empty.
    Send(SendRequest),
    /// Receive streams into the directory of the token. They follow as [`Data`](Kind::Data) and [`End`](Kind::End) or
    /// [`Stop`](Kind::Stop). Reports come as [`Event`](Kind::Event).
    Receive(ReceiveRequest),
    /// Change what lies below the directory of the token, by commands as in a stream, which follow as
    /// for [`Receive`](Self::Receive). Each frame has whole commands, without checksums and without a
    /// stream's header. None begins a subvolume, and `rmdir` removes a directory with all that is in
    /// it. [`Token`](Kind::Token) frames between them stand for directories from which files may be
    /// copied. Reports come as [`Event`](Kind::Event); the reply is that of receiving.
    Change,
    /// Walk through the directory of the token. The records come as [`Data`](Kind::Data), whole ones in each frame.
    /// The reply is empty.
    Walk(WalkRequest),
    /// Keep the state of a commit, for as long as the connection exists, and read from its devices.
    /// An [`Event`](Kind::Event) describes each [device](super::StateDevice), and an empty one ends the
    /// list. Then the client sends [calls](super::StateCall) as [`Data`](Kind::Data). The reply comes
    /// after [`End`](Kind::End), and is empty.
    State,
    /// Report, once the mount is gone, whether the last commit reached the devices. An empty
    /// [`Event`](Kind::Event) confirms the request. While the last commit waits for a device, further
    /// ones say why. The reply comes at the end of the server and is empty.
    Ending,
    /// Make all changes durable, also those that only the kernel has. The reply is empty. A server
    /// whose last mount has ended closes the connection instead, and reports the same with
    /// [`Ending`](Self::Ending).
    Commit,
    /// Delete what nothing needs any more on the object storage that the mount lies on. The reply has
    /// three numbers: how many objects were rewritten, how many were deleted, and how many wait until
    /// their time is over.
    Collect,
    /// Change the mount options to these, separated by commas. The reply is empty.
    Remount(String),
    /// Mount in another place too, with these options, separated by commas. The reply is a
    /// [`MountReply`](super::MountReply); after it comes a byte with the descriptor of a mount.
    Mount(String),
}

/// A snapshot to send, with options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendRequest {
    /// Version of the stream.
    pub version: u64,
    /// Id of the parent, for an increment.
    pub parent: Option<u64>,
    /// Ids of snapshots that the receiver has as well.
    pub clone_sources: Vec<u64>,
    /// Send compressed data as it is stored.
    pub compressed_data: bool,
    /// Send no data.
    pub no_data: bool,
    /// A stream begins with this snapshot.
    pub begins_stream: bool,
    /// The stream ends with this snapshot.
    pub ends_stream: bool,
}

impl Request {
    /// The kind of its frame.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Send(_) => Kind::Send,
            Self::Receive(_) => Kind::Receive,
            Self::Change => Kind::Change,
            Self::Walk(_) => Kind::Walk,
            Self::State => Kind::State,
            Self::Ending => Kind::Ending,
            Self::Commit => Kind::Commit,
            Self::Collect => Kind::Collect,
            Self::Remount(_) => Kind::Remount,
            Self::Mount(_) => Kind::Mount,
        }
    }

    /// The body of its frame.
    pub fn body(&self) -> Vec<u8> {
        match self {
            Self::Send(request) => request.body(),
            Self::Receive(request) => request.body(),
            Self::Walk(request) => request.body(),
            Self::Change | Self::State | Self::Ending | Self::Commit | Self::Collect => Vec::new(),
            Self::Remount(words) | Self::Mount(words) => words.clone().into_bytes(),
        }
    }

    /// The request in a frame.
    pub fn parse(kind: Kind, body: &[u8]) -> io::Result<Self> {
        if matches!(kind, Kind::Remount | Kind::Mount) {
            let words = String::from_utf8(body.to_vec());
            let words = words.map_err(|_| invalid("options that are no text"))?;
            return Ok(if kind == Kind::Mount { Self::Mount(words) } else { Self::Remount(words) });
        }
        if kind == Kind::Walk {
            return WalkRequest::parse(body).map(Self::Walk);
        }
        let (words, rest) = body.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(invalid("a request with extra bytes"));
        }
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match kind {
            Kind::Send => SendRequest::parse(&words).map(Self::Send),
            Kind::Receive => ReceiveRequest::parse(&words).map(Self::Receive),
            Kind::Change if words.is_empty() => Ok(Self::Change),
            Kind::State if words.is_empty() => Ok(Self::State),
            Kind::Ending if words.is_empty() => Ok(Self::Ending),
            Kind::Commit if words.is_empty() => Ok(Self::Commit),
            Kind::Collect if words.is_empty() => Ok(Self::Collect),
            _ => Err(invalid("a frame that is not a request")),
        }
    }
}

impl SendRequest {
    fn body(&self) -> Vec<u8> {
        let flags = [
            (self.compressed_data, COMPRESSED_DATA),
            (self.no_data, NO_DATA),
            (self.begins_stream, BEGINS_STREAM),
            (self.ends_stream, ENDS_STREAM),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = set.fold(0, |all, (_, flag)| all | flag);
        let head = [self.version, flags, self.parent.unwrap_or(0)];
        bytes_of(head.iter().chain(&self.clone_sources))
    }

    fn parse(words: &[u64]) -> io::Result<Self> {
        let [version, flags, parent, clone_sources @ ..] = words else {
            return Err(invalid("a request to send that is too short"));
        };
        if clone_sources.len() > MOST_CLONE_SOURCES {
            return Err(invalid("too many clone sources"));
        }
        if flags & !(COMPRESSED_DATA | NO_DATA | BEGINS_STREAM | ENDS_STREAM) != 0 {
            return Err(invalid("a request with unknown flags"));
        }
        Ok(Self {
            version: *version,
            parent: (*parent != 0).then_some(*parent),
            clone_sources: clone_sources.to_vec(),
            compressed_data: flags & COMPRESSED_DATA != 0,
            no_data: flags & NO_DATA != 0,
            begins_stream: flags & BEGINS_STREAM != 0,
            ends_stream: flags & ENDS_STREAM != 0,
        })
    }
}

fn bytes_of<'a>(words: impl Iterator<Item = &'a u64>) -> Vec<u8> {
    words.flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::CheckpointRequest;
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let send = SendRequest {
            version: 2,
            parent: Some(299),
            clone_sources: vec![256, 257],
            compressed_data: true,
            no_data: false,
            begins_stream: true,
            ends_stream: false,
        };
        let receive = ReceiveRequest {
            stop_at_end: true,
            max_errors: 7,
            force_decompress: false,
            checkpoints: None,
        };
        let first = CheckpointRequest { stream: 7, every_bytes: 8, from: None };
        let checkpoints = [first, CheckpointRequest { from: Some(0), ..first }].map(Some);
        let [first, next] =
            checkpoints.map(|checkpoints| ReceiveRequest { checkpoints, ..receive });
        for request in [
            Request::Send(send),
            Request::Send(SendRequest::default()),
            Request::Receive(receive),
            Request::Change,
            Request::State,
            Request::Ending,
            Request::Commit,
            Request::Collect,
            Request::Remount("ro,commit=5".to_owned()),
            Request::Mount("ro,subvol=a b".to_owned()),
            Request::Receive(ReceiveRequest { stop_at_end: false, max_errors: 0, ..receive }),
            Request::Receive(ReceiveRequest { force_decompress: true, ..receive }),
            Request::Receive(first),
            Request::Receive(next),
        ] {
            let read = Request::parse(request.kind(), &request.body());
            assert_eq!(read.unwrap(), request);
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let parse = |kind, words: &[u64]| Request::parse(kind, &bytes_of(words.iter()));
        assert!(parse(Kind::Send, &[1, 12, 0]).is_ok());
        assert!(parse(Kind::Send, &[1, 12]).is_err());
        assert!(parse(Kind::Send, &[1, 16, 0]).is_err());
        assert!(parse(Kind::Send, &vec![0; 3 + MOST_CLONE_SOURCES]).is_ok());
        assert!(parse(Kind::Send, &vec![0; 4 + MOST_CLONE_SOURCES]).is_err());
        assert!(parse(Kind::Receive, &[1, 1, 0, 0, 0]).is_ok());
        assert!(parse(Kind::Receive, &[16, 1, 0, 0, 0]).is_err());
        assert!(parse(Kind::Receive, &[1, 1]).is_err());
        assert!(parse(Kind::Change, &[5]).is_err());
        assert!(parse(Kind::Ending, &[1]).is_err());
        assert!(parse(Kind::State, &[1]).is_err());
        assert!(parse(Kind::Data, &[]).is_err());
        assert!(Request::parse(Kind::Remount, b"\xff").is_err());
        assert!(Request::parse(Kind::Mount, b"\xff").is_err());
        assert!(Request::parse(Kind::Receive, &[0; 33]).is_err());
    }
}
