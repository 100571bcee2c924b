//! Reading a file from one position after the other.

use std::io;

use crate::file::handle::File;

/// Reads a file from a position that moves on.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) file: File,
    pub(super) position: u64,
}

impl io::Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buf, self.position)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl io::Seek for Reader {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => self.position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.file.len_bytes().checked_add_signed(by),
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        self.position = position.ok_or_else(invalid)?;
        Ok(self.position)
    }
}
