//! Times of last access.
//!
//! The kernel leaves these times to the server, which sees only reads that miss the kernel's cache.
//! If a mount keeps access times, an open drops the cache of a file or directory whose time the
//! next read changes, so that each open that reads counts once at least. By default a mount keeps
//! none, and directories are opened without a request.

use larder::{FileType, Inode, InodeFlags, Metadata, SetAttributes, Timestamp};

use crate::options::{AccessTimes, ServerOptions};

/// Seconds after which a read updates the time even of an unchanged file.
const DAY_SECONDS: i64 = 24 * 3600;

/// Notes that a file or directory was read.
pub(super) fn note_read(options: &ServerOptions, inode: &Inode) {
    if options.access_times == AccessTimes::Never {
        return;
    }
    let metadata = inode.metadata();
    if is_due(options, inode, &metadata) {
        let (atime, ctime) = (Some(Timestamp::now()), Some(metadata.ctime));
        // A file that is read-only, or a file system that is full, keeps its times.
        let _ = inode.set_attributes(&SetAttributes { atime, ctime, ..SetAttributes::default() });
    }
}

/// Whether the next read changes the time of last access.
pub(super) fn is_due(options: &ServerOptions, inode: &Inode, metadata: &Metadata) -> bool {
    let is_directory = inode.file_type() == FileType::Directory;
    if options.nodiratime && is_directory || metadata.flags.contains(InodeFlags::NOATIME) {
        return false;
    }
    match options.access_times {
        AccessTimes::Never => false,
        AccessTimes::Relative => is_old(metadata, Timestamp::now()),
        AccessTimes::Always => true,
    }
}

/// Whether the time of last access is no later than the last change, or is a day old.
fn is_old(metadata: &Metadata, now: Timestamp) -> bool {
    let at = |time: Timestamp| (time.seconds, time.nanoseconds);
    let atime = at(metadata.atime);
    atime <= at(metadata.mtime)
        || atime <= at(metadata.ctime)
        || now.seconds.saturating_sub(atime.0) >= DAY_SECONDS
}
