//! When something was last read.
//!
//! The kernel leaves these times to the server, which sees only reads of what the kernel has not kept. Where they
//! are wanted, the kernel drops at each opening what it keeps of a file or directory whose time the next read is to
//! change: so each opening that reads counts once at least. Where they are not wanted, which is so unless somebody
//! asks, directories are opened without a request.

use larder::{FileType, Inode, InodeFlags, Metadata, SetAttributes, Timestamp};

use crate::options::{AccessTimes, ServerOptions};

/// Seconds after which a time is not kept any longer, though nothing was changed since.
const DAY_SECONDS: i64 = 24 * 3600;

/// Something was read.
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
