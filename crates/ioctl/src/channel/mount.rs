//! The messages for mounting a file system in another place too.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{Channel, Request, descriptor, frame, invalid};

/// The subvolume to show, and its path: the body of [`Done`](super::Kind::Done).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountReply {
    /// Its id.
    pub subvolume: u64,
    /// Its path within the mount that comes with the reply; empty if it is the root of that mount.
    pub path: PathBuf,
    /// Requested options that are ignored because the file system is mounted with others.
    pub ignored: String,
}

impl MountReply {
    /// The body of its frame: the id, the length of the path, the path, the options.
    pub fn body(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        let numbers = [self.subvolume, path.len() as u64].map(u64::to_le_bytes).concat();
        [&numbers, path, self.ignored.as_bytes()].concat()
    }

    fn parse(body: &[u8]) -> io::Result<Self> {
        let too_short = || invalid("a reply that is too short");
        let (subvolume, body) = body.split_first_chunk().ok_or_else(too_short)?;
        let (path_len, body) = body.split_first_chunk().ok_or_else(too_short)?;
        let path_len = usize::try_from(u64::from_le_bytes(*path_len)).unwrap_or(usize::MAX);
        let (path, ignored) = body.split_at_checked(path_len).ok_or_else(too_short)?;
        Ok(Self {
            subvolume: u64::from_le_bytes(*subvolume),
            path: OsString::from_vec(path.to_vec()).into(),
            ignored: String::from_utf8_lossy(ignored).into_owned(),
        })
    }
}

impl Channel {
    /// Requests a detached mount with the options `words`. The reply says which part of it to show.
    ///
    /// # Errors
    /// The server's reason, with its message; `UnexpectedEof` if it ended.
    pub fn mount(&mut self, words: String) -> io::Result<(MountReply, OwnedFd)> {
        let body = self.call(&Request::Mount(words), &mut |_, _| Ok(()))?;
        let tree = descriptor::receive(&self.socket).map_err(frame::of_socket)?;
        Ok((MountReply::parse(&body)?, tree.ok_or_else(frame::gone)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_as_they_were_written() {
        for (path, ignored) in [("", ""), ("a b/c", "compress=lzo,discard"), ("", "commit=5")] {
            let reply = MountReply { subvolume: 300, path: path.into(), ignored: ignored.into() };
            assert_eq!(MountReply::parse(&reply.body()).unwrap(), reply);
        }
        assert!(MountReply::parse(&[0; 15]).is_err());
        assert!(MountReply::parse(&[255; 16]).is_err());
    }
}
