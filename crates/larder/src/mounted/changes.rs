//! Changing trees on mounts of larder.

use std::io;
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use larder_ioctl::channel::{
    Authority, Channel, Kind, NodeId, ReceiveNews, ReceiveReply, Request, frame, token,
};
use larder_stream::{Change, Command, Original, encode_local};

/// At least so many bytes of commands go to the server at once.
const PIECE_BYTES: usize = 256 << 10;

/// Changes below a directory of a mount of larder. Its server applies them, in their order, while
/// the caller goes on: no call waits for a change. The server does for the caller what the caller
/// could do through the mount, and does it for root and for the user who mounted only.
///
/// The changes are complete once [`finish`](Self::finish) has returned; they are not durable. If
/// the value is dropped before, those that were sent are still applied.
#[derive(Debug)]
pub struct MountedChanges {
    channel: Channel,
    directory: NodeId,
    /// Commands that were not sent yet.
    waiting: Vec<u8>,
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
        let Some((channel, directory)) = Channel::of(directory)? else { return Ok(None) };
        let request = Request::Change;
        let sent = frame::write(channel.socket(), request.kind(), &request.body());
        sent.map_err(frame::of_socket)?;
        let from = channel.socket().try_clone()?;
        let reports = thread::spawn(move || read_reports(&from, observe));
        Ok(Some(Self { channel, directory, waiting: Vec::new(), reports: Some(reports) }))
    }

    /// The subvolume and the number of the directory, if `other` lies on a mount of the same server:
    /// then files below the directory can be [copies](Self::copy) of those below
    /// `other`.
    pub fn directory_beside(&mut self, other: impl AsFd) -> io::Result<Option<(u64, u64)>> {
        if self.channel.node(&other)?.is_none() {
            return Ok(None);
        }
        let shown = Authority::Token(token(other)?).show(self.channel.socket());
        shown.map_err(|error| self.reason(error))?;
        Ok(Some((self.directory.subvolume, self.directory.inode)))
    }

    /// Makes a change. Paths are relative to the directory; a clone names its source by the nil
    /// uuid and a path of the same kind. `rmdir` removes a directory with all that is in it. An
    /// error of kind [`io::ErrorKind::InvalidInput`] means that the command is too long.
    pub fn make(&mut self, command: &Command<'_>) -> io::Result<()> {
        self.change(&Change::Command(*command))
    }

    /// Makes a change, if its path leads to `inode` by then: another program may have moved it
    /// meanwhile. Otherwise it fails, as others do.
    pub fn make_on(&mut self, inode: Original, command: &Command<'_>) -> io::Result<()> {
        self.change(&Change::On { inode, command: *command })
    }

    /// Gives the file at `path`, which is new and empty, the content of another one of the same
    /// file system.
    pub fn copy(&mut self, path: &[u8], original: Original) -> io::Result<()> {
        self.change(&Change::Copy { path, original })
    }

    fn change(&mut self, change: &Change<'_>) -> io::Result<()> {
        let before = self.waiting.len();
        let encoded = encode_local(change, &mut self.waiting);
        encoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if self.waiting.len() - before > frame::MOST_BYTES {
            self.waiting.truncate(before);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is too long"));
        }
        if self.waiting.len() < PIECE_BYTES {
            return Ok(());
        }
        // The last command goes with the others if a frame has room for it.
        let split = if self.waiting.len() > frame::MOST_BYTES { before } else { 0 };
        let sent = self.send(split).and_then(|()| self.send(self.waiting.len()));
        sent.map_err(|error| self.reason(error))
    }

    /// Sends the first `len` waiting bytes.
    fn send(&mut self, len: usize) -> io::Result<()> {
        if len > 0 {
            frame::write(self.channel.socket(), Kind::Data, &self.waiting[..len])?;
            self.waiting.drain(..len);
        }
        Ok(())
    }

    /// Waits until all changes are made. Returns how many failed.
    pub fn finish(mut self) -> io::Result<u64> {
        let ended = self.send(self.waiting.len());
        let ended = ended.and_then(|()| frame::write(self.channel.socket(), Kind::End, &[]));
        match (ended, self.reports()) {
            (_, Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(frame::of_socket(error)),
            (Ok(()), reports) => reports,
        }
    }

    /// What the server said, which explains an error of the socket.
    fn reason(&mut self, error: io::Error) -> io::Error {
        let _ = self.channel.socket().shutdown(Shutdown::Both);
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
