//! Frames: the messages of a channel. A header of two little-endian 32-bit numbers, a kind and the
//! length of the body in bytes, then the body.

use std::io::{self, Read, Write};

use super::invalid;

/// Bytes of the longest body.
pub const MOST_BYTES: usize = 1 << 20;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// [`Request::Send`](super::Request::Send).
    Send = 1,
    /// [`Request::Receive`](super::Request::Receive).
    Receive = 2,
    /// [`Request::Ending`](super::Request::Ending).
    Ending = 3,
    /// [`Request::Remount`](super::Request::Remount).
    Remount = 4,
    /// [`Request::Mount`](super::Request::Mount).
    Mount = 5,
    /// [`Request::Change`](super::Request::Change).
    Change = 6,
    /// [`Request::Walk`](super::Request::Walk).
    Walk = 7,
    /// [`Request::State`](super::Request::State).
    State = 8,
    /// [`Request::Commit`](super::Request::Commit).
    Commit = 9,
    /// [`Authority::Token`](super::Authority::Token).
    Token = 10,
    /// [`Authority::Image`](super::Authority::Image).
    Image = 11,
    /// [`Request::Collect`](super::Request::Collect).
    Collect = 12,
    /// Either way: a part of the request's data.
    Data = 0x100,
    /// From the client: there is no more data.
    End = 0x101,
    /// From the client: it wants to stop.
    Stop = 0x102,
    /// From the server: a report while it serves the request.
    Event = 0x103,
    /// From the server: the request was served. The content of the body depends on the request.
    Done = 0x200,
    /// From the server: the request failed. The body is an error number of 32 bits and a text.
    Failed = 0x201,
}

const KINDS: [Kind; 18] = [
    Kind::Send,
    Kind::Receive,
    Kind::Ending,
    Kind::Remount,
    Kind::Mount,
    Kind::Change,
    Kind::Walk,
    Kind::State,
    Kind::Commit,
    Kind::Token,
    Kind::Image,
    Kind::Collect,
    Kind::Data,
    Kind::End,
    Kind::Stop,
    Kind::Event,
    Kind::Done,
    Kind::Failed,
];

/// Writes a frame.
pub fn write(mut to: impl Write, kind: Kind, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len()).ok().filter(|len| *len as usize <= MOST_BYTES);
    let len = len.ok_or(invalid("a frame that is too long"))?;
    let header = u64::from(len) << 32 | u64::from(kind as u32);
    to.write_all(&header.to_le_bytes())?;
    to.write_all(body)
}

/// Reads a frame into `body`, which is replaced. `None` if the other side has ended between frames.
pub fn read(mut from: impl Read, body: &mut Vec<u8>) -> io::Result<Option<Kind>> {
    let mut header = [0; 8];
    let mut filled = 0;
    while filled < header.len() {
        match from.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let header = u64::from_le_bytes(header);
    let (number, len) = (header as u32, (header >> 32) as usize);
    let kind = KINDS.into_iter().find(|kind| *kind as u32 == number);
    let kind = kind.ok_or(invalid("a frame of an unknown kind"))?;
    if len > MOST_BYTES {
        return Err(invalid("a frame that is too long"));
    }
    // Only what the last frame did not fill is cleared.
    body.resize(len, 0);
    from.read_exact(body)?;
    Ok(Some(kind))
}

/// The body of [`Kind::Failed`].
pub fn failed(errno: i32, message: &str) -> Vec<u8> {
    [&errno.to_le_bytes()[..], message.as_bytes()].concat()
}

/// The error in the body of [`Kind::Failed`]: that of its number, with its text if it has one.
pub fn failure(body: &[u8]) -> io::Error {
    let Some((number, message)) = body.split_first_chunk() else {
        return invalid("a reply that is too short");
    };
    let error = io::Error::from_raw_os_error(i32::from_le_bytes(*number));
    match message {
        b"" => error,
        message => io::Error::new(error.kind(), String::from_utf8_lossy(message).into_owned()),
    }
}

/// For a client: the server closed the connection without a reply.
pub fn gone() -> io::Error {
    let text = "the server of the mount is gone";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// For a client: an error of the socket, which may mean that the server closed the connection.
pub fn of_socket(error: io::Error) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => gone(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        for (kind, body) in [(Kind::Send, &b"abc"[..]), (Kind::End, b""), (Kind::Done, b"x")] {
            write(&mut bytes, kind, body).unwrap();
        }
        let (mut from, mut body) = (&bytes[..], Vec::new());
        let mut next = || read(&mut from, &mut body).unwrap().map(|kind| (kind, body.clone()));
        assert_eq!(next(), Some((Kind::Send, b"abc".to_vec())));
        assert_eq!(next(), Some((Kind::End, Vec::new())));
        assert_eq!(next(), Some((Kind::Done, b"x".to_vec())));
        assert_eq!(next(), None);
        assert!(write(Vec::new(), Kind::Data, &vec![0; MOST_BYTES + 1]).is_err());
    }

    #[test]
    fn false_headers_are_refused() {
        let read = |bytes: &[u8]| read(bytes, &mut Vec::new()).map_err(|error| error.kind());
        let header = |kind: u32, len: u32| [kind.to_le_bytes(), len.to_le_bytes()].concat();
        for len in [MOST_BYTES as u32 + 1, u32::MAX] {
            assert_eq!(read(&header(Kind::Data as u32, len)), Err(io::ErrorKind::InvalidData));
        }
        assert_eq!(read(&header(77, 0)), Err(io::ErrorKind::InvalidData));
        let cut = read(&header(Kind::Data as u32, 1));
        assert_eq!(cut, Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(&[1, 0, 0]), Err(io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn failures_keep_their_kind_and_their_words() {
        let error = failure(&failed(2, "no bread"));
        assert_eq!((error.kind(), &*error.to_string()), (io::ErrorKind::NotFound, "no bread"));
        assert_eq!(failure(&failed(1, "")).raw_os_error(), Some(1));
        assert_eq!(failure(b"x").kind(), io::ErrorKind::InvalidData);
    }
}
