//! A block device that stands in for an image file or a block device as the source of a mount.
//!
//! For some mounts the kernel requires a block device as the source, and claims it. The server of
//! such a mount has already opened its image or claimed its block device. So it attaches a loop
//! device and passes that to the kernel.
//!
//! # Invariants
//! - No program reads or writes through a stand-in. The server reads and writes the stand-in's
//!   target, and holds its lock.
//! - This process opens the stand-in, and the kernel opens it for the mount. The kernel detaches it
//!   after the last of both closes it, also if the server was killed.
//! - Every stand-in has the same [`NAME`], which tells another writer that it excludes nothing.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::ioctl::{self, LOOP_NAME_BYTES, LoopName};
use super::{Identity, loops};

/// The name of loop devices that are stand-ins.
pub(crate) const NAME: LoopName = {
    let (text, mut name) = (b"larder stand-in", [0; LOOP_NAME_BYTES]);
    let mut at = 0;
    while at < text.len() {
        name[at] = text[at];
        at += 1;
    }
    LoopName(name)
};

/// Attempts with devices that seem free: other processes attach theirs meanwhile.
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
    /// Those of the system: only root may attach, and loop devices must exist.
    pub fn attach(target: &Path) -> io::Result<Self> {
        // With its own open file, since that of the caller has the caller's lock.
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

    /// The target of `device`, if that is a stand-in.
    pub fn target_if_stand_in(device: &Path) -> Option<PathBuf> {
        let identity = Identity::of_path(device)?;
        loops::is_stand_in(identity).then(|| loops::backing_path(identity)).flatten()
    }

    /// The target of the loop device `device`. `None` if it is no loop device, or its target has no
    /// name any more.
    pub fn target_of(device: &Path) -> Option<PathBuf> {
        loops::backing_path(Identity::of_path(device)?)
    }
}
