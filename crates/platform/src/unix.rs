//! Unix: a name is bytes.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use std::os::unix::ffi::{OsStrExt, OsStringExt};
pub use std::os::unix::fs::{FileExt, FileTypeExt};

use rustix::time::{ClockId, clock_gettime};

/// The path of `below` in `directory`, inside a file system.
pub fn join(directory: &Path, below: impl AsRef<OsStr>) -> PathBuf {
    directory.join(below.as_ref())
}

/// The directory of a path inside a file system, and the name in it. `None` for the name if the path
/// leads to the root or ends with `..`.
pub fn split(path: &Path) -> (&Path, Option<&OsStr>) {
    (path.parent().unwrap_or(Path::new("")), path.file_name())
}

/// What a path leads to, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileId {
    /// A block device.
    Device {
        /// Its number.
        rdev: u64,
    },
    /// Anything else.
    File {
        /// The number of its file system.
        dev: u64,
        /// The number of its inode.
        inode: u64,
    },
}

impl FileId {
    /// What `path` leads to, through symbolic links.
    ///
    /// # Errors
    /// Those of looking at it.
    pub fn of(path: &Path) -> io::Result<Self> {
        let there = path.metadata()?;
        Ok(if there.file_type().is_block_device() {
            Self::Device { rdev: there.rdev() }
        } else {
            Self::File { dev: there.dev(), inode: there.ino() }
        })
    }
}

/// Writes some of `bufs` at `offset`, and returns how many bytes that was.
///
/// # Errors
/// Those of the system. `bufs` are no more than 1024.
pub fn write_vectored_at(file: &File, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, bufs, offset)?)
}

/// Creates a folder and those above it, as far as they are missing, for this user only.
///
/// # Errors
/// Those of the system.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes `options` give a file that they create to this user only: it has content of files that
/// other users may not read.
pub fn for_this_user_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// The time since a moment in the past that stays the same while the system runs. It goes on while
/// the system sleeps, and nobody sets it.
pub fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the names in `directory` durable.
///
/// # Errors
/// Those of the system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The number of a device, as `st_rdev` has it.
pub fn device_number(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor) as u64
}

/// The user and the group that this process acts for.
pub fn user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}
