//! A regular file or a block device.
//!
//! # Invariants
//! - A device open for writing holds the exclusive lock of its inode, of everything beneath it if
//!   it is a loop device, and, if it is a block device, the kernel's exclusive claim. The lock is
//!   taken before the file is changed in any way, and nothing was using it after the lock was
//!   taken.
//! - `len_bytes` is the length that the system last reported or was told to set; no call passes it.
//! - Once a flush has failed, `flush_failed` stays set and no later flush succeeds: the kernel
//!   reports a failed writeback once and then forgets the pages. Flushes run one at a time, or a
//!   second one under way could miss what the first was told.

mod direct;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_platform::{FileExt, for_this_user_only, write_vectored_at};
use parking_lot::Mutex;

use crate::device::total_len;
use crate::error::check_call;
use crate::system::{self, Identity, find_use};
use crate::usage::{InUse, Mounts};
use crate::{Device, DeviceError, Operation, lock};

/// The use that a device is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading. Takes no lock; see [`in_use`](crate::in_use) to warn of writers.
    ReadOnly,
    /// Reading around the page cache, with `O_DIRECT`. Takes no lock.
    ReadOnlyDirect,
    /// Reading and writing, as the only writer.
    ReadWrite,
    /// The same, for the server of Larder mounts from this device.
    ReadWriteMounted,
}

impl Access {
    /// The mounts that prevent writing.
    fn mounts(self) -> Mounts {
        if self == Self::ReadWriteMounted { Mounts::NotLarders } else { Mounts::All }
    }
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    file: File,
    access: Access,
    sector_bytes: u32,
    /// Whether this is a block device rather than a regular file.
    is_block: bool,
    len_bytes: AtomicU64,
    flush_failed: Mutex<bool>,
    /// Files beneath a loop device, open for the sake of their locks.
    _beneath: Vec<File>,
}

impl FileDevice {
    /// Opens an existing file or block device.
    ///
    /// With [`Access::ReadWrite`] it fails with [`DeviceError::InUse`] if another writer has the
    /// device open, or a kernel has it mounted, attached to a loop device or otherwise held. With
    /// [`Access::ReadOnlyDirect`] it fails where the file system knows no direct I/O.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, DeviceError> {
        Self::open_with(path.as_ref(), access, OpenOptions::new().read(true))
    }

    /// Creates a file of `len_bytes` zeros that takes no space, for this user only, or makes an
    /// existing one so. Opens it for writing, with the errors of [`open`](Self::open); a file in use is left as it was.
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Self, DeviceError> {
        let mut options = OpenOptions::new();
        for_this_user_only(options.read(true).create(true));
        let device = Self::open_with(path.as_ref(), Access::ReadWrite, &mut options)?;
        device.set_len(0)?;
        device.set_len(len_bytes)?;
        Ok(device)
    }

    /// Creates an empty file, for this user only, and opens it for writing. It fails if there is
    /// anything at `path`.
    pub fn create_new(path: impl AsRef<Path>) -> Result<Self, DeviceError> {
        let mut options = OpenOptions::new();
        for_this_user_only(options.read(true).create_new(true));
        Self::open_with(path.as_ref(), Access::ReadWrite, &mut options)
    }

    fn open_with(
        path: &Path,
        access: Access,
        options: &mut OpenOptions,
    ) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        let failed = |source| DeviceError::Open { device: name.clone(), source };

        // Checked before opening: opening a pipe would wait, and opening a block device claims it.
        let found = match path.metadata() {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let known = found.as_ref().map(|it| Identity::of(it).ok_or_else(|| failed(not_storage())));
        let known = known.transpose()?;
        if matches!(access, Access::ReadWrite | Access::ReadWriteMounted) {
            options.write(true);
        }
        let is_block = known.is_some_and(Identity::is_block);
        let in_use = |by| DeviceError::InUse { device: name.clone(), by };
        let opened = lock::wait_for_passing_use(found.as_ref(), || {
            match system::open(options, path, access, is_block) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    let by = known.and_then(|known| find_use(known, Mounts::All));
                    Ok(Err(by.unwrap_or(InUse::Locked)))
                }
                settled => settled.map(Ok),
            }
        });
        let mut file = opened.map_err(failed)?.map_err(in_use)?;
        let metadata = file.metadata().map_err(failed)?;
        let identity = Identity::of(&metadata).ok_or_else(|| failed(not_storage()))?;
        let beneath = match access {
            Access::ReadWrite | Access::ReadWriteMounted => {
                lock::exclude_others(&file, identity, access.mounts())
                    .map_err(failed)?
                    .map_err(in_use)?
            }
            Access::ReadOnly | Access::ReadOnlyDirect => Vec::new(),
        };
        let is_block = identity.is_block();
        let sector_bytes = system::sector_bytes(&file, is_block).map_err(failed)?;
        let len_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self {
            file,
            access,
            sector_bytes,
            is_block,
            len_bytes: AtomicU64::new(len_bytes),
            flush_failed: Mutex::new(false),
            _beneath: beneath,
            name,
        })
    }

    /// Makes a regular file longer, with a hole, or shorter; fails on a block device. The caller
    /// makes sure that no other call is under way beyond the new end.
    pub fn set_len(&self, len_bytes: u64) -> Result<(), DeviceError> {
        // The system counts in signed numbers, whose end is not said in words.
        let set = match i64::try_from(len_bytes) {
            Ok(_) => self.file.set_len(len_bytes),
            Err(_) => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        };
        set.map_err(|source| {
            let device = self.name.clone();
            DeviceError::Resize { device, len_bytes, source }
        })?;
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    /// The unit in which the device reads and writes: the logical sector of a block device, 512
    /// bytes for a regular file.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Whether this is a block device rather than a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// Whether `path` leads to it, and a file still has its length: nobody has removed, replaced or cut
    /// what the next opening would find.
    pub fn is_at(&self, path: &Path) -> bool {
        let (Ok(here), there) = (self.file.metadata(), path.metadata()) else { return true };
        match there {
            Ok(there) => {
                let has_its_length = self.is_block || there.len() == self.len_bytes();
                Identity::of(&here) == Identity::of(&there) && has_its_length
            }
            // What cannot be looked up may be there.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Another descriptor of the open file, for programs that read or write it by other means. The
    /// lock ends when the last one is closed.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Asks the system to drop its cache of the device, so that reads come from the medium.
    /// Unflushed writes stay cached.
    pub fn drop_cache(&self) {
        system::drop_cache(&self.file);
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

fn not_storage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, system::NOT_STORAGE)
}

pub(crate) fn no_direct_io() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the file system does not support direct I/O")
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn is_writable(&self) -> bool {
        matches!(self.access, Access::ReadWrite | Access::ReadWriteMounted)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = buf.len() as u64;
        check_call(self, Operation::Read, offset, len_bytes)?;
        let result = match self.access {
            Access::ReadOnlyDirect => direct::read_exact_at(&self.file, buf, offset),
            Access::ReadOnly | Access::ReadWrite | Access::ReadWriteMounted => {
                self.file.read_exact_at(buf, offset)
            }
        };
        result.map_err(|source| self.error(Operation::Read, offset, len_bytes, source))
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
        let mut flush_failed = self.flush_failed.lock();
        let result = if *flush_failed {
            Err(io::Error::other("an earlier flush failed"))
        } else {
            self.file.sync_data()
        };
        *flush_failed = result.is_err();
        result.map_err(|source| self.error(Operation::Flush, 0, len_bytes, source))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        // Whole sectors only: the edges stay as they are.
        let sector_bytes = u64::from(self.sector_bytes);
        let start = offset.next_multiple_of(sector_bytes);
        let end = (offset + len_bytes) / sector_bytes * sector_bytes;
        if start >= end {
            return Ok(());
        }
        system::discard(&self.file, self.is_block, start..end)
            .map_err(|source| self.error(Operation::Discard, offset, len_bytes, source))
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        // Direct reads do not find data in the page cache, and to the system a length of zero means
        // the whole file.
        if let Some(len_bytes) = NonZeroU64::new(len_bytes)
            && self.access != Access::ReadOnlyDirect
        {
            system::will_need(&self.file, offset, len_bytes);
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
            match write_vectored_at(file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
