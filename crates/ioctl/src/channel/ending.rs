//! Learning how a server ended.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::frame::{self, Kind};
use super::{Channel, Request, invalid};

/// The server of a mount, which will report how it ended. That does not need the mount itself.
#[derive(Debug)]
pub struct Ending {
    socket: UnixStream,
}

impl Ending {
    /// Asks the server of the Larder mount that `inode` lies in to report how it ends. `None` if it
    /// is another file system, or if the server does not serve this user.
    pub fn of(inode: impl AsFd) -> io::Result<Option<Self>> {
        let socket = match Channel::of(inode) {
            Ok(Some((Channel { socket, .. }, _))) => socket,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        let request = Request::Ending;
        let mut body = Vec::new();
        let asked = frame::write(&socket, request.kind(), &request.body());
        match asked.and_then(|()| frame::read(&socket, &mut body)) {
            Ok(Some(Kind::Event)) => Ok(Some(Self { socket })),
            Ok(Some(Kind::Failed)) => Err(frame::failure(&body)),
            Ok(Some(_)) => Err(invalid("a reply of another kind")),
            Ok(None) => Ok(None),
            Err(error) => match frame::of_socket(error) {
                error if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Waits for the end of the server. `waits` gets the reason whenever the server says that it
    /// waits for a device.
    ///
    /// # Errors
    /// The reason why the last commit did not reach the devices; `UnexpectedEof` if the server
    /// ended without a report.
    pub fn wait(self, mut waits: impl FnMut(String)) -> io::Result<()> {
        let mut body = Vec::new();
        loop {
            return match frame::read(&self.socket, &mut body).map_err(frame::of_socket)? {
                Some(Kind::Event) => {
                    waits(String::from_utf8_lossy(&body).into_owned());
                    continue;
                }
                Some(Kind::Done) => Ok(()),
                Some(Kind::Failed) => Err(frame::failure(&body)),
                Some(_) => Err(invalid("a reply of another kind")),
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }
}
