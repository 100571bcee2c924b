//! Streams that come from a client.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, Scope};

use larder_ioctl::channel::{Kind, frame};

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

/// Reads a frame of a stream. `None` at its end.
fn read(socket: &UnixStream, data: &mut Vec<u8>) -> io::Result<Option<()>> {
    match frame::read(socket, data)? {
        Some(Kind::Data) => Ok(Some(())),
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

/// A stream that a thread of `scope` reads ahead. It ends at the end of the stream, or once the
/// socket is shut down.
pub(super) fn ahead<'s>(scope: &'s Scope<'s, '_>, socket: &'s UnixStream) -> io::Result<impl Read> {
    let (filled, frames) = sync_channel(MOST_WAITING);
    let run = move || {
        loop {
            let mut data = Vec::new();
            let outcome = read(socket, &mut data).map(|more| more.map(|()| data));
            let is_last = !matches!(outcome, Ok(Some(_)));
            if filled.send(outcome).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("larder-input".into()).spawn_scoped(scope, run)?;
    Ok(Input::new(move |data| receive(&frames, data)))
}

fn receive(
    frames: &Receiver<io::Result<Option<Vec<u8>>>>,
    data: &mut Vec<u8>,
) -> io::Result<Option<()>> {
    match frames.recv() {
        Ok(Ok(Some(frame))) => {
            *data = frame;
            Ok(Some(()))
        }
        Ok(Ok(None)) => Ok(None),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
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
