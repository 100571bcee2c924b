//! Opening files and block devices, and the hints about them.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use rustix::io::Errno;

use super::ioctl;
use crate::Access;
use crate::file::no_direct_io;

/// Why a path that leads to something else is refused.
pub(crate) const NOT_STORAGE: &str = "neither a regular file nor a block device";

/// Opens `path` as `access` asks: for direct I/O, or with the exclusive claim of a block device.
pub(crate) fn open(
    options: &mut OpenOptions,
    path: &Path,
    access: Access,
    is_block: bool,
) -> io::Result<File> {
    let flags = match access {
        Access::ReadOnlyDirect => OFlags::DIRECT,
        Access::ReadWrite | Access::ReadWriteMounted if is_block => OFlags::EXCL,
        Access::ReadOnly | Access::ReadWrite | Access::ReadWriteMounted => OFlags::empty(),
    };
    options.custom_flags(flags.bits() as i32).open(path).map_err(|error| {
        let is_invalid = error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        if access == Access::ReadOnlyDirect && is_invalid { no_direct_io() } else { error }
    })
}

/// The unit in which the device reads and writes.
pub(crate) fn sector_bytes(file: &File, is_block: bool) -> io::Result<u32> {
    if is_block { Ok(rustix::fs::ioctl_blksszget(file)?) } else { Ok(512) }
}

/// Discards a range, if that is possible.
pub(crate) fn discard(file: &File, is_block: bool, range: Range<u64>) -> io::Result<()> {
    let len_bytes = range.end - range.start;
    let result = if is_block {
        ioctl::discard_blocks(file, range.start, len_bytes)
    } else {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, range.start, len_bytes)
    };
    match result {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Tells the system that the range will be read.
pub(crate) fn will_need(file: &File, offset: u64, len_bytes: NonZeroU64) {
    let _ = fadvise(file, offset, Some(len_bytes), Advice::WillNeed);
}

/// Asks the system to drop its cache of the file.
pub(crate) fn drop_cache(file: &File) {
    // A hint: a system that ignores it keeps its cache.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}
