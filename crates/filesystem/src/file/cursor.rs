//! Reading and writing a file from one position after the other.

use std::io;

use crate::handle::file::File;

/// A position in a file that moves on as the file is read and written, as that of
/// [`std::fs::File`]. Several cursors of a file do not affect each other.
///
/// Writing past the end leaves a hole. Nothing is durable before
/// [`Filesystem::sync`](crate::Filesystem::sync); flushing does nothing.
#[derive(Clone, Debug)]
pub struct FileCursor {
    pub(crate) file: File,
    pub(crate) position: u64,
}

impl FileCursor {
    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl io::Read for FileCursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buf, self.position)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl io::Write for FileCursor {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write_at(data, self.position)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for FileCursor {
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
