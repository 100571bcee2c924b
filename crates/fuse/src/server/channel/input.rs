//! Streams that come from a client.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use larder_ioctl::channel::{Kind, frame};

/// The stream in the frames that a client sends.
pub(super) struct Input<'s> {
    socket: &'s UnixStream,
    data: Vec<u8>,
    at: usize,
    is_at_end: bool,
}

impl<'s> Input<'s> {
    pub(super) fn new(socket: &'s UnixStream) -> Self {
        Self { socket, data: Vec::new(), at: 0, is_at_end: false }
    }
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.data.len() && !self.is_at_end {
            self.at = 0;
            match frame::read(self.socket, &mut self.data)? {
                Some(Kind::Data) => {}
                Some(Kind::End) => self.is_at_end = true,
                Some(Kind::Stop) => {
                    return Err(io::Error::other(String::from_utf8_lossy(&self.data)));
                }
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let len = into.len().min(self.data.len() - self.at);
        into[..len].copy_from_slice(&self.data[self.at..][..len]);
        self.at += len;
        Ok(len)
    }
}
