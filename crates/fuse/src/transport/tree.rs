//! Mounts of a file system that are in no place yet, and attaching them.
//!
//! # Invariants
//! - A process that walks through a mount waits for its server. The server itself never does:
//!   killed in the middle, it would wait for itself and could not end. It attaches only the root of
//!   the file system; another process attaches what lies below.
//! - A file system stays mounted as long as there is a tree of it, attached or not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use larder_ioctl::channel::{NodeId, node_of};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::geteuid;

use super::version;

/// The inode number of each subvolume's root.
const ROOT_INODE: u64 = 256;
/// The first Linux that makes a mount of a part of a detached one.
const FIRST_LINUX_WITH_PARTS: (u32, u32) = (6, 15);

/// A detached mount.
#[derive(Debug)]
pub struct Tree(OwnedFd);

impl Tree {
    /// A tree that a server sent, or passed on.
    pub fn received(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The descriptor, to pass to another process.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Attaches it at the directory `mountpoint`. This sends no request to the server.
    pub fn attach(&self, mountpoint: &Path) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&self.0, "", CWD, mountpoint, flags)?)
    }

    /// The part of it from the subvolume with the id `subvolume` down. `path` is the path of that
    /// in this tree; if it is empty, the part is all of it. A process must not ask for a part of a
    /// file system that it serves.
    ///
    /// # Errors
    /// `NotFound` if the subvolume is not there any more: it was renamed or deleted meanwhile.
    pub fn part(self, subvolume: u64, path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Ok(self);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let root = openat2(&self.0, path, flags, Mode::empty(), inside)?;
        if node_of(&root)? != Some(NodeId { subvolume, inode: ROOT_INODE }) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        Ok(Self(open_tree(&root, "", flags)?))
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether this process can mount a part of a file system, so that a server can have the whole file
/// system and show a subvolume of it.
pub fn can_mount_parts() -> bool {
    geteuid().is_root() && version::is_at_least(FIRST_LINUX_WITH_PARTS)
}
