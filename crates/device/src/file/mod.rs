//! A regular file or a block device.
//!
//! # Invariants
//! - The length in `len_bytes` is what the system last told or was told; no call passes it.
//! - Once a flush has failed, `flush_failed` stays set and no later flush succeeds: the kernel reports
//!   a failed writeback once and then forgets the pages.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Advice, FallocateFlags};

use crate::device::total_len;
use crate::error::check_call;
use crate::{Device, DeviceError, Operation};

/// What a device is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading; takes no lock.
    ReadOnly,
    /// Reading and writing, as the only writer.
    ReadWrite,
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    file: File,
    access: Access,
    kind: Kind,
    len_bytes: AtomicU64,
    flush_failed: AtomicBool,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    Block,
}

impl FileDevice {
    /// Opens an existing file or block device.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let write = access == Access::ReadWrite;
        Self::from_file(path, access, OpenOptions::new().read(true).write(write).open(path))
    }

    /// Creates a file of `len_bytes` zeros, taking no space, or empties an existing one and makes
    /// it so.
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let device = Self::from_file(path, Access::ReadWrite, opened)?;
        device.set_len(len_bytes)?;
        Ok(device)
    }

    fn from_file(
        path: &Path,
        access: Access,
        opened: io::Result<File>,
    ) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        let inner = |mut file: File| -> io::Result<(File, Kind, u64)> {
            let kind = kind_of(&file)?;
            let len_bytes = file.seek(SeekFrom::End(0))?;
            Ok((file, kind, len_bytes))
        };
        match opened.and_then(inner) {
            Ok((file, kind, len_bytes)) => Ok(Self {
                name,
                file,
                access,
                kind,
                len_bytes: AtomicU64::new(len_bytes),
                flush_failed: AtomicBool::new(false),
            }),
            Err(source) => Err(DeviceError::Open { device: name, source }),
        }
    }

    /// Makes a regular file longer, with a hole, or shorter. The caller makes sure that no other
    /// call is under way beyond the new end.
    pub fn set_len(&self, len_bytes: u64) -> Result<(), DeviceError> {
        self.file
            .set_len(len_bytes)
            .map_err(|source| DeviceError::Open { device: self.name.clone(), source })?;
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    /// The smallest unit that the device reads and writes in one piece: the logical sector size
    /// of a block device, 512 for a file.
    pub fn sector_bytes(&self) -> Result<u32, DeviceError> {
        match self.kind {
            Kind::Regular => Ok(512),
            Kind::Block => rustix::fs::ioctl_blksszget(&self.file).map_err(|errno| {
                DeviceError::Open { device: self.name.clone(), source: errno.into() }
            }),
        }
    }

    fn error(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        source: impl Into<io::Error>,
    ) -> DeviceError {
        DeviceError::io(self, operation, offset, len_bytes, source)
    }
}

fn kind_of(file: &File) -> io::Result<Kind> {
    let file_type = file.metadata()?.file_type();
    if file_type.is_file() {
        Ok(Kind::Regular)
    } else if file_type.is_block_device() {
        Ok(Kind::Block)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a regular file nor a block device",
        ))
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = buf.len() as u64;
        check_call(self, Operation::Read, offset, len_bytes)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| self.error(Operation::Read, offset, len_bytes, source))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = buf.len() as u64;
        check_call(self, Operation::Write, offset, len_bytes)?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|source| self.error(Operation::Write, offset, len_bytes, source))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = total_len(bufs);
        check_call(self, Operation::Write, offset, len_bytes)?;
        write_all_vectored(&self.file, bufs, offset)
            .map_err(|source| self.error(Operation::Write, offset, len_bytes, source))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let len_bytes = self.len_bytes();
        check_call(self, Operation::Flush, 0, len_bytes)?;
        let result = match self.flush_failed.load(Ordering::Acquire) {
            true => Err(io::Error::other("an earlier flush failed")),
            false => self.file.sync_data(),
        };
        result.map_err(|source| {
            self.flush_failed.store(true, Ordering::Release);
            self.error(Operation::Flush, 0, len_bytes, source)
        })
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len_bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.error(Operation::Discard, offset, len_bytes, errno)),
        }
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        // A length of zero would mean "to the end of the file".
        if let Some(len) = std::num::NonZeroU64::new(len_bytes) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }
}

/// Writes all of `bufs` at `offset`, in as few system calls as the limit on buffers allows.
fn write_all_vectored(file: &File, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    /// UIO_MAXIOV of Linux.
    const BUFFERS_PER_CALL: usize = 1024;
    for chunk in bufs.chunks(BUFFERS_PER_CALL) {
        let mut chunk = chunk.to_vec();
        let mut rest = &mut chunk[..];
        IoSlice::advance_slices(&mut rest, 0); // drops leading empty buffers
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    offset += written as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}
