//! Streams that come from a client.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::{self, Scope};

use larder_ioctl::channel::{Kind, Token, frame};
use zerocopy::FromBytes;

/// Frames that are read ahead.
const MOST_WAITING: usize = 2;

/// The stream in the frames that a client sends.
pub(super) struct Input<F> {
    /// Reads the next frame into a buffer. `None` at the end of the stream.
    next: F,
    data: Vec<u8>,
    at: usize,
    is_at_end: bool,
}

/// A frame between the commands of a client.
pub(super) enum Frame {
    /// Commands.
    Data(Vec<u8>),
    Token(Token),
}

/// Reads a frame of a stream. `None` at its end.
fn read(socket: &UnixStream, data: &mut Vec<u8>) -> io::Result<Option<()>> {
    match read_kind(socket, data)? {
        Some(Kind::Data) => Ok(Some(())),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Ok(None),
    }
}

/// Reads a frame, and returns its kind. `None` at the end of the stream.
fn read_kind(socket: &UnixStream, data: &mut Vec<u8>) -> io::Result<Option<Kind>> {
    match frame::read(socket, data)? {
        Some(kind @ (Kind::Data | Kind::Token)) => Ok(Some(kind)),
        Some(Kind::End) => Ok(None),
        Some(Kind::Stop) => Err(io::Error::other(String::from_utf8_lossy(data))),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A stream that this thread reads itself.
pub(super) fn direct(socket: &UnixStream) -> impl Read {
    Input::new(move |data| read(socket, data))
}

/// Frames that a thread of `scope` reads ahead. They end with the stream, or once the socket is shut
/// down.
pub(super) fn ahead<'s>(scope: &'s Scope<'s, '_>, socket: &'s UnixStream) -> io::Result<Ahead> {
    let (filled, frames) = sync_channel(MOST_WAITING);
    let (used, empty) = channel();
    let run = move || {
        loop {
            // Memory that is used again is faster than new memory.
            let mut data = empty.try_recv().unwrap_or_default();
            let outcome = read_kind(socket, &mut data).and_then(|kind| Frame::of(kind, data));
            let is_last = !matches!(outcome, Ok(Some(_)));
            if filled.send(outcome).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("larder-input".into()).spawn_scoped(scope, run)?;
    Ok(Ahead { frames, used })
}

/// See [`ahead`].
pub(super) struct Ahead {
    frames: Receiver<io::Result<Option<Frame>>>,
    used: Sender<Vec<u8>>,
}

impl Ahead {
    /// The next frame. `None` at the end of the stream.
    pub(super) fn next(&self) -> io::Result<Option<Frame>> {
        self.frames.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Takes the memory of a frame back.
    pub(super) fn reuse(&self, frame: Vec<u8>) {
        // The thread may have ended.
        let _ = self.used.send(frame);
    }
}

impl Frame {
    fn of(kind: Option<Kind>, data: Vec<u8>) -> io::Result<Option<Self>> {
        match kind {
            None => Ok(None),
            Some(Kind::Token) => match Token::read_from_bytes(&data) {
                Ok(token) => Ok(Some(Self::Token(token))),
                Err(_) => Err(io::ErrorKind::InvalidData.into()),
            },
            Some(_) => Ok(Some(Self::Data(data))),
        }
    }
}

impl<F: FnMut(&mut Vec<u8>) -> io::Result<Option<()>>> Input<F> {
    fn new(next: F) -> Self {
        Self { next, data: Vec::new(), at: 0, is_at_end: false }
    }
}

impl<F: FnMut(&mut Vec<u8>) -> io::Result<Option<()>>> Read for Input<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.data.len() && !self.is_at_end {
            self.at = 0;
            if (self.next)(&mut self.data)?.is_none() {
                self.data.clear();
                self.is_at_end = true;
            }
        }
        let len = into.len().min(self.data.len() - self.at);
        into[..len].copy_from_slice(&self.data[self.at..][..len]);
        self.at += len;
        Ok(len)
    }
}
