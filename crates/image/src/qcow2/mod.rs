//! Disks of virtual machines in the format qcow2.
//!
//! # Invariants
//! - The image file stays open with the lock of its [`FileDevice`], and only one program writes.
//! - A flush makes data and the tables that lead to it durable.
//! - Nothing except the image file is written. Backing files are read, up to a chain of
//!   [`MOST_BACKING_FILES`]; a data file beside the image is refused.
//! - After a flush failed no later one succeeds.

mod counts;
mod host;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::{FormatAccess, FormatDriverBuilder, Mapping, Storage, StorageOpenOptions};
use larder_device::{Device, DeviceError, FileDevice, Operation, check_call};
use larder_platform::errno::in_words;

use self::host::Host;

/// The method of encryption in the header: 0 is none.
const ENCRYPTION_OFFSET: u64 = 32;

/// A file may name itself as its backing file.
const MOST_BACKING_FILES: usize = 64;

/// As many buffers as a system call takes.
const BUFFERS_PER_CALL: usize = 1024;

/// A disk in an image file.
struct Qcow2Device {
    /// Discards need it alone.
    disk: RwLock<FormatAccess<Host>>,
    len_bytes: u64,
    flush_failed: Mutex<bool>,
    /// The image file, with its lock. Closed last.
    file: Arc<FileDevice>,
}

/// Opens the disk in `file`, whose path is `path`, for reading, or for writing if `file` is open for
/// that.
pub(crate) fn open(file: Arc<FileDevice>, path: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(Arc::new(Qcow2Device::open(file, path)?))
}

impl Qcow2Device {
    fn open(file: Arc<FileDevice>, path: &Path) -> Result<Self, DeviceError> {
        let opened = Self::open_disk(&file, path);
        let disk = opened.map_err(|problem| DeviceError::Open {
            device: file.name().to_owned(),
            source: io::Error::new(
                problem.kind(),
                format!("as a qcow2 image: {}", in_words(&problem)),
            ),
        })?;
        let len_bytes = disk.size();
        Ok(Self { disk: RwLock::new(disk), len_bytes, flush_failed: Mutex::new(false), file })
    }

    fn open_disk(file: &Arc<FileDevice>, path: &Path) -> io::Result<FormatAccess<Host>> {
        let refused = |problem| Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        let mut encryption = [0; 4];
        file.read_at(&mut encryption, ENCRYPTION_OFFSET).map_err(io::Error::other)?;
        if encryption != [0; 4] {
            return refused("it is encrypted");
        }
        let host = Host::of_file(file, path)?;
        let mut disk = Qcow2::<Host>::open_image(host, file.is_writable())?;
        if disk.requires_external_data_file() {
            return refused("its data is in another file");
        }
        disk.open_implicit_dependencies_gated(BackingFiles { left: MOST_BACKING_FILES })?;
        Ok(FormatAccess::new(disk))
    }

    fn disk(&self) -> RwLockReadGuard<'_, FormatAccess<Host>> {
        self.disk.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush_failed(&self) -> MutexGuard<'_, bool> {
        self.flush_failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let disk = self.disk();
        for chunk in bufs.chunks(BUFFERS_PER_CALL) {
            let len_bytes: u64 = chunk.iter().map(|buf| buf.len() as u64).sum();
            disk.writev(chunk.to_vec().into(), offset)?;
            offset += len_bytes;
        }
        Ok(())
    }

    fn flush_all(&self) -> io::Result<()> {
        let disk = self.disk();
        disk.flush()?;
        disk.sync()
    }
}

/// Discards what holds data between two bytes: what holds none would get tables that say so.
fn discard_data(disk: &mut FormatAccess<Host>, mut offset: u64, end: u64) -> io::Result<()> {
    while offset < end {
        let (mapping, len_bytes) = disk.get_mapping(offset, end - offset)?;
        let is_zero = matches!(mapping, Mapping::Zero { .. });
        if len_bytes == 0 {
            break;
        }
        if !is_zero {
            disk.discard_to_any(offset, len_bytes)?;
        }
        offset += len_bytes;
    }
    Ok(())
}

/// Opens backing files for reading.
struct BackingFiles {
    /// How long the chain may still get.
    left: usize,
}

impl ImplicitOpenGate<Host> for BackingFiles {
    fn open_format<F: FormatDriverBuilder<Host>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<Host>> {
        let left = self.left.checked_sub(1);
        let left =
            left.ok_or_else(|| io::Error::other("its chain of backing files is too long"))?;
        Ok(FormatAccess::new(builder.open(Self { left })?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<Host> {
        if options.get_writable() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its data is in another file"));
        }
        Host::open(options)
    }
}

impl Device for Qcow2Device {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = buf.len() as u64;
        check_call(self, Operation::Read, offset, len_bytes)?;
        let read = self.disk().read(buf, offset);
        read.map_err(|source| DeviceError::io(self, Operation::Read, offset, len_bytes, source))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        check_call(self, Operation::Write, offset, len_bytes)?;
        let written = self.write_all(bufs, offset);
        written.map_err(|source| DeviceError::io(self, Operation::Write, offset, len_bytes, source))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        check_call(self, Operation::Flush, 0, self.len_bytes)?;
        let mut flush_failed = self.flush_failed();
        let result = if *flush_failed {
            Err(io::Error::other("an earlier flush failed"))
        } else {
            self.flush_all()
        };
        *flush_failed = result.is_err();
        result.map_err(|source| DeviceError::io(self, Operation::Flush, 0, self.len_bytes, source))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        let mut disk = self.disk.write().unwrap_or_else(PoisonError::into_inner);
        match discard_data(&mut disk, offset, offset + len_bytes) {
            // Version 2 of the format cannot say that a part holds nothing.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                Err(DeviceError::io(self, Operation::Discard, offset, len_bytes, error))
            }
            _ => Ok(()),
        }
    }

    fn readahead(&self, _offset: u64, _len_bytes: u64) {}
}

/// Nothing that was written is lost while the system goes on.
impl Drop for Qcow2Device {
    fn drop(&mut self) {
        if self.is_writable() && !*self.flush_failed() {
            // No caller is left to hear of an error.
            let _ = self.flush_all();
        }
    }
}

impl fmt::Debug for Qcow2Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qcow2Device").field("file", &self.file).finish_non_exhaustive()
    }
}
