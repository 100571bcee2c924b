//! An estimate of how far a send of the kernel has come, which the kernel does not tell.

use std::fs::File;

use larder_format::objectid;
use larder_stream::{Counted, Follower};
use rustix::fs::{AtFlags, statat};

use super::MountedSnapshot;
use crate::{SendOptions, SendProgress};

/// Guesses from the stream: the kernel sends inodes in the order of their numbers.
pub(super) struct Estimate<'a> {
    root: &'a File,
    follower: Follower,
    counted: Counted,
    progress: &'a SendProgress,
}

impl<'a> Estimate<'a> {
    /// For a send of the snapshot whose root is `root`.
    pub(super) fn new(root: &'a File, options: &'a SendOptions<MountedSnapshot>) -> Self {
        // Without this there is no estimate.
        let total =
            larder_ioctl::last_inode(root).map_or(0, |last| last - objectid::FIRST_FREE + 1);
        Self {
            root,
            follower: Follower::new(options.version, options.begins_stream),
            counted: Counted { done: 0, total },
            progress: &options.progress,
        }
    }

    /// A piece of the stream passes.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        let Some(work) = self.follower.pass(piece) else { return };
        // An inode without its final name is not found.
        let Ok(stat) = statat(self.root, work.path, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.counted.done = stat.st_ino.saturating_sub(objectid::FIRST_FREE);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.progress.set_millionths(self.counted.millionths(work.offset, size));
    }
}
