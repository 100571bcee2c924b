//! A mount: requests from the kernel in, calls of the library `larder` out.
//!
//! - [`Mount`]: a mounted file system that waits for somebody to serve its requests.
//! - [`Server`]: serves them from a [`Filesystem`](larder::Filesystem).
//! - [`unmount`], [`mounted_from`]: what a command needs to end a mount.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = larder::OpenOptions::new().write(true).open(["disk.img"])?;
//! let server = larder_fuse::Server::new(&fs, &fs.default_subvolume()?, Default::default())?;
//! let mount = larder_fuse::Mount::new("/mnt".as_ref(), &Default::default())?;
//! mount.serve(&server)?; // until it is unmounted
//! drop(server);
//! fs.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - `protocol` knows bytes, `transport` knows descriptors, `server` knows the library; none knows more.
//! - No request can make the server panic, hang, or allocate beyond its buffers and what the file system
//!   has.
//! - The kernel is the one who checks permissions (`default_permissions`), and may remember what it was
//!   told for ever: all changes pass through it, and of the few that it does not make itself (subvolumes
//!   made and deleted by ioctl) it is told.
//! - Only `transport` has `unsafe`: for an ioctl, and for the memory of rings.
#![deny(unsafe_code)]

mod protocol;
mod server;
#[allow(unsafe_code)]
mod transport;

use std::ffi::OsString;
use std::io;
use std::path::Path;

pub use server::{AccessTimes, Server, ServerOptions};
pub use transport::{mounted_from, unmount};

use transport::{DevFuse, Transport};

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the table of mounts shows as the source.
    pub source: OsString,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users than the one who mounts can look in.
    pub allow_other: bool,
    /// Setuid bits have no effect. So it always is for who is not root.
    pub nosuid: bool,
    /// Device nodes have no effect. So it always is for who is not root.
    pub nodev: bool,
    /// Programs cannot be run.
    pub noexec: bool,
    /// Requests come through rings of io_uring where the kernel offers that and this process may.
    pub io_uring: bool,
    /// What the table of mounts says about times of last access, which the server keeps.
    pub access_times: AccessTimes,
    /// That of directories is not kept.
    pub nodiratime: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "larder".into(),
            read_only: false,
            allow_other: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            io_uring: true,
            access_times: AccessTimes::Never,
            nodiratime: false,
        }
    }
}

/// A mounted file system. Whoever uses it waits until somebody serves.
#[derive(Debug)]
pub struct Mount {
    transport: DevFuse,
}

impl Mount {
    /// Mounts at the directory `mountpoint`.
    pub fn new(mountpoint: &Path, options: &MountOptions) -> io::Result<Self> {
        let device = transport::mount(mountpoint, options)?;
        Ok(Self { transport: DevFuse::new(device, options.io_uring) })
    }

    /// Has `server` serve requests until the file system is unmounted.
    pub fn serve(&self, server: &Server) -> io::Result<()> {
        server.with_channel(&self.transport, || self.transport.serve(server))
    }
}
