//! Changing trees on mounts of larder.

use std::io::{self, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use larder_ioctl::channel::{Channel, Kind, ReceiveNews, ReceiveReply, Request, frame};
use larder_stream::{Command, Writer};

use crate::StreamVersion;

/// How many bytes of commands go to the server at once.
const PIECE_BYTES: usize = 256 << 10;

/// Changes below a directory of a mount of larder. Its server applies them, in their order, while
/// the caller goes on: no call waits for a change. The server does for the caller what the caller
/// could do through the mount, and does it for root and for the user who mounted only.
///
/// The changes are complete once [`finish`](Self::finish) has returned; they are not durable. If
/// the value is dropped before, those that were sent are still applied.
#[derive(Debug)]
pub struct MountedChanges {
    writer: Writer<Frames>,
    /// Reads what the server says; ends with the number of commands that failed.
    reports: Option<JoinHandle<io::Result<u64>>>,
}

impl MountedChanges {
    /// Begins changes below `directory`. `None` if it does not lie on a mount of larder.
    ///
    /// `observe` gets the server's reports, in another thread, and decides whether to go on.
    pub fn below(
        directory: impl AsFd,
        observe: impl FnMut(ChangeEvent<'_>) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Option<Self>> {
        let Some((channel, node)) = Channel::of(directory)? else { return Ok(None) };
        let request = Request::Change(node);
        let socket = channel.socket().try_clone()?;
        frame::write(&socket, request.kind(), &request.body()).map_err(frame::of_socket)?;
        let from = socket.try_clone()?;
        let reports = thread::spawn(move || read_reports(&from, observe));
        let frames = Frames { socket, waiting: Vec::with_capacity(PIECE_BYTES) };
        Ok(Some(Self { writer: Writer::new(frames, StreamVersion::V2)?, reports: Some(reports) }))
    }

    /// Makes a change. Paths are relative to the directory; a clone names its source by the nil
    /// uuid and a path of the same kind. `rmdir` removes a directory with all that is in it.
    pub fn make(&mut self, command: &Command<'_>) -> io::Result<()> {
        match self.writer.write(command) {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(self.reason(error)),
            written => written,
        }
    }

    /// Waits until all changes are made. Returns how many failed.
    pub fn finish(mut self) -> io::Result<u64> {
        let ended = self.writer.write(&Command::End);
        let ended = ended.and_then(|()| self.writer.output().end());
        match (ended, self.reports()) {
            (_, Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(frame::of_socket(error)),
            (Ok(()), reports) => reports,
        }
    }

    /// What the server said, which explains an error of the socket.
    fn reason(&mut self, error: io::Error) -> io::Error {
        let _ = self.writer.output().socket.shutdown(Shutdown::Both);
        self.reports().err().unwrap_or_else(|| frame::of_socket(error))
    }

    fn reports(&mut self) -> io::Result<u64> {
        let reports = self.reports.take().map(JoinHandle::join);
        reports.transpose().map_err(|_| frame::gone())?.unwrap_or_else(|| Err(frame::gone()))
    }
}

/// A report about changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEvent<'a> {
    /// The server cannot make a change, for this reason. Changes that depend on it are left out.
    Failed(&'a str),
    /// The number of names removed so far, while a directory is removed.
    Removed(u64),
}

/// Reads the server's reports up to its reply. Returns how many commands failed.
fn read_reports(
    from: &UnixStream,
    mut observe: impl FnMut(ChangeEvent<'_>) -> ControlFlow<()>,
) -> io::Result<u64> {
    let (mut body, mut failures) = (Vec::new(), 0);
    loop {
        let next = match frame::read(from, &mut body).map_err(frame::of_socket)? {
            Some(Kind::Event) => match ReceiveNews::parse(&body)? {
                ReceiveNews::Failed(text) => {
                    failures += 1;
                    observe(ChangeEvent::Failed(&String::from_utf8_lossy(text)))
                }
                ReceiveNews::Removed(names) => observe(ChangeEvent::Removed(names)),
                _ => ControlFlow::Continue(()),
            },
            Some(Kind::Done) => return ReceiveReply::parse(&body).map(|_| failures),
            Some(Kind::Failed) => return Err(frame::failure(&body)),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Err(frame::gone()),
        };
        if next.is_break() {
            from.shutdown(Shutdown::Both)?;
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

/// Gathers bytes into frames.
#[derive(Debug)]
struct Frames {
    socket: UnixStream,
    waiting: Vec<u8>,
}

impl Frames {
    fn pass_on(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            frame::write(&self.socket, Kind::Data, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.pass_on()?;
        frame::write(&self.socket, Kind::End, &[])
    }
}

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.len() + bytes.len() > PIECE_BYTES {
            self.pass_on()?;
        }
        if bytes.len() >= PIECE_BYTES {
            let len = bytes.len().min(frame::MOST_BYTES);
            frame::write(&self.socket, Kind::Data, &bytes[..len])?;
            return Ok(len);
        }
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()
    }
}
