//! A block device that stands in for an image file or a block device as the source of a mount.
//!
//! The kernel demands a block device as the source of some mounts, and claims it for itself. The
//! server of such a mount has its image open already, and has claimed its block device. It attaches
//! a loop device and names that to the kernel.
//!
//! # Invariants
//! - No program reads or writes through a stand-in. The server reads and writes what the stand-in
//!   is attached to, and holds its lock.
//! - This process opens the stand-in, and the kernel opens it for the mount. The kernel detaches it
//!   after the last of both closes it, also if the server was killed.
//! - Every stand-in has the same [`NAME`], by which another writer knows that it does not stand in
//!   its way.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::ioctl::{self, LOOP_NAME_BYTES, LoopName};
use crate::usage::{self, Identity};

/// The name that a loop device is given that is a stand-in.
pub(crate) const NAME: LoopName = {
    let (text, mut name) = (b"larder stand-in", [0; LOOP_NAME_BYTES]);
    let mut at = 0;
    while at < text.len() {
        name[at] = text[at];
        at += 1;
    }
    LoopName(name)
};

/// How many devices that seem to be free are tried before giving up: others attach theirs meanwhile.
const ATTEMPTS: u32 = 64;

/// A loop device that stands in for an image file or a block device.
#[derive(Debug)]
pub struct StandIn {
    path: PathBuf,
    /// Keeps the device attached.
    _device: File,
}

impl StandIn {
    /// Attaches a free loop device to `target`.
    ///
    /// # Errors
    /// Those of the system, for all but root and where there are no loop devices.
    pub fn attach(target: &Path) -> io::Result<Self> {
        // With an open file of its own, or it would keep the lock of the caller's.
        let backing = File::options().read(true).write(true).open(target)?;
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        for _ in 0..ATTEMPTS {
            let path = PathBuf::from(format!("/dev/loop{}", ioctl::free_loop(&control)?));
            let device = File::options().read(true).write(true).open(&path)?;
            match ioctl::attach_loop(&device, &backing, NAME) {
                Ok(()) => return Ok(Self { path, _device: device }),
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// The node of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the loop device `device` is attached to. `None` if it is no loop device, or what it is attached to has
    /// no name any more.
    pub fn target_of(device: &Path) -> Option<PathBuf> {
        usage::backing_path(Identity::of_path(device)?)
    }
}
