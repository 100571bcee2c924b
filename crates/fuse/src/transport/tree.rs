//! Mounts of a file system that are in no place yet, and how they come to one.
//!
//! # Invariants
//! - A process that walks through a mount waits for its server. The server itself never walks there: killed in the middle,
//!   it would wait for itself and could not end. It attaches only the root of what it serves; what lies below is
//!   attached by another process.
//! - A file system stays mounted while there is a tree of it, in a place or in none.

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
/// The first Linux that makes a mount of a part of one that is in no place.
const FIRST_LINUX_WITH_PARTS: (u32, u32) = (6, 15);

/// A mount that is in no place yet.
#[derive(Debug)]
pub struct Tree(OwnedFd);

impl Tree {
    /// What a server sent, or has passed on.
    pub fn received(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// For a process that is started with it, or that it is sent to.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Shows it at the directory `mountpoint`. No request goes to the server for that.
    pub fn attach(&self, mountpoint: &Path) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&self.0, "", CWD, mountpoint, flags)?)
    }

    /// The subvolume with the id `subvolume`, of which `path` is the path in it; empty, that is the whole of it. A process
    /// must not ask for a part of what it serves.
    ///
    /// # Errors
    /// `NotFound` if the subvolume is not there any more: it has been renamed or deleted meanwhile.
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

/// Whether this process can mount a part of what its servers serve, in other words whether
/// a server can have the whole file system and show a subvolume of it.
pub fn can_mount_parts() -> bool {
    geteuid().is_root() && version::is_at_least(FIRST_LINUX_WITH_PARTS)
}
