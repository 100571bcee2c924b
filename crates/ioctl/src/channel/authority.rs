//! What a client shows a server before its first request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::frame::{self, Kind};
use super::{descriptor, invalid};
use crate::abi::TOKEN;
use crate::call;

/// Stands for an open inode of a Larder mount, and for the process that asked for the token: its
/// user and groups, its capabilities, and whether it could write through its mount. A client shows
/// it to the server once, soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Token {
    /// A random number.
    pub words: [u64; 2],
}

/// Why a server serves a connection.
#[derive(Debug)]
pub enum Authority<F = OwnedFd> {
    /// An inode of the mount. The server knows the rest.
    Token(Token),
    /// The image or device that is mounted. It allows another mount and a commit, no more.
    Image(F),
}

impl Authority<BorrowedFd<'_>> {
    /// Shows it to the server at the other end of `socket`, which answers only a false one.
    pub fn show(&self, socket: &UnixStream) -> io::Result<()> {
        match self {
            Self::Token(token) => frame::write(socket, Kind::Token, token.as_bytes()),
            Self::Image(image) => {
                frame::write(socket, Kind::Image, &[])?;
                descriptor::send(socket, image)
            }
        }
    }
}

impl Authority {
    /// What the client at the other end of `socket` shows. `None` if it has ended.
    pub fn shown(socket: &UnixStream) -> io::Result<Option<Self>> {
        let mut body = Vec::new();
        match frame::read(socket, &mut body)? {
            Some(Kind::Token) => {
                let token = Token::read_from_bytes(&body).map_err(|_| invalid("a token"))?;
                Ok(Some(Self::Token(token)))
            }
            Some(Kind::Image) => {
                let image = descriptor::receive(socket)?;
                Ok(Some(Self::Image(image.ok_or(invalid("an image without a descriptor"))?)))
            }
            Some(_) => Err(invalid("a client that shows no authority")),
            None => Ok(None),
        }
    }
}

/// A token for `inode`, which lies on a Larder mount.
///
/// # Errors
/// `PermissionDenied` if its server gives this user none.
pub fn token(inode: impl AsFd) -> io::Result<Token> {
    call::read::<TOKEN, Token>(inode)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_server_reads_what_a_client_shows() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let token = Token { words: [7, u64::MAX] };
        Authority::Token(token).show(&theirs).unwrap();
        let shown = Authority::shown(&ours).unwrap();
        assert!(matches!(shown, Some(Authority::Token(it)) if it == token));
        let file = File::open("/dev/null").unwrap();
        Authority::Image(file.as_fd()).show(&theirs).unwrap();
        assert!(matches!(Authority::shown(&ours).unwrap(), Some(Authority::Image(_))));
        frame::write(&theirs, Kind::Token, &[0; 15]).unwrap();
        assert!(Authority::shown(&ours).is_err());
        frame::write(&theirs, Kind::Change, &[]).unwrap();
        assert!(Authority::shown(&ours).is_err());
        drop(theirs);
        assert!(Authority::shown(&ours).unwrap().is_none());
    }
}
