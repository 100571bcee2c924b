//! Other systems: regular files, with what the standard library offers for them.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Access;
use crate::file::no_direct_io;
use crate::signature::Signature;
use crate::usage::{InUse, Mounts};

/// Why a path that leads to something else is refused.
pub(crate) const NOT_STORAGE: &str =
    "not a regular file; disks and partitions can be opened on Linux only, elsewhere copy them";

/// A regular file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity;

impl Identity {
    /// `None` for anything except a regular file.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then_some(Self)
    }

    pub(crate) fn is_block(self) -> bool {
        false
    }
}

/// Seconds since 1970, and nanoseconds from there.
pub fn now() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        // A clock before 1970 is not set.
        Err(_) => (0, 0),
    }
}

/// Opens `path`, and refuses direct I/O.
pub(crate) fn open(
    options: &mut OpenOptions,
    path: &Path,
    access: Access,
    _is_block: bool,
) -> io::Result<File> {
    if access == Access::ReadOnlyDirect { Err(no_direct_io()) } else { options.open(path) }
}

/// The unit in which the file is read and written.
pub(crate) fn sector_bytes(_file: &File, _is_block: bool) -> io::Result<u32> {
    Ok(512)
}

/// Keeps the range: no portable call makes a hole.
pub(crate) fn discard(_file: &File, _is_block: bool, _range: Range<u64>) -> io::Result<()> {
    Ok(())
}

/// Leaves readahead to the system.
pub(crate) fn will_need(_file: &File, _offset: u64, _len_bytes: NonZeroU64) {}

/// Leaves the cache to the system.
pub(crate) fn drop_cache(_file: &File) {}

/// None: no kernel here mounts btrfs from a file.
pub(crate) fn find_use(_identity: Identity, _mounts: Mounts) -> Option<InUse> {
    None
}

/// None: there are no loop devices.
pub(crate) fn backing_path(_identity: Identity) -> Option<PathBuf> {
    None
}

/// None: there is no library to ask.
pub(crate) fn signature(_file: &File, _range: Range<u64>) -> io::Result<Option<Signature>> {
    Ok(None)
}

/// No lock of a file is lent.
pub(crate) fn is_lent(_file: &File) -> bool {
    false
}

/// No process is known to end.
pub(crate) fn is_left(_locked: &Metadata) -> bool {
    false
}

/// None: partitions of a file have no nodes.
pub fn partition_node(_path: impl AsRef<Path>, _offset: u64, _len_bytes: u64) -> Option<PathBuf> {
    None
}
