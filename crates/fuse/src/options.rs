//! How to mount, and how to serve.

use std::ffi::OsString;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The image file or device: what the table of mounts shows as the source. Where sync(2) can reach
    /// the mount, the table shows a loop device that is attached to it.
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
    /// Processors stay awake while requests keep coming.
    pub awake: bool,
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
            awake: true,
        }
    }
}

/// How a server serves.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Users may delete subvolumes that they could delete if they were directories.
    pub user_subvol_rm_allowed: bool,
    /// Which reads change the time of last access.
    pub access_times: AccessTimes,
    /// Directories keep theirs.
    pub nodiratime: bool,
    /// Syncing a file is a commit of everything.
    pub notreelog: bool,
    /// The kernel keeps what programs write, and brings it later: a program hears from fsync, or from close, what
    /// write(2) would have told it otherwise.
    pub writeback_cache: bool,
    /// How many inodes the server remembers for the kernel: above that it asks the kernel to drop
    /// those that nobody uses, which Linux 6.18 and newer do.
    pub most_nodes: usize,
    /// The most bytes that one request brings or asks for: a power of two, from 64 KiB to 1 MiB. Each thread has memory
    /// for two of them.
    pub most_io_bytes: usize,
    /// The most threads that serve requests at a time, besides those that wait for the kernel to do what it was told.
    /// Over rings there are two for each processor at least.
    pub most_threads: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            user_subvol_rm_allowed: false,
            access_times: AccessTimes::default(),
            nodiratime: false,
            notreelog: false,
            writeback_cache: false,
            most_nodes: 1 << 17,
            most_io_bytes: 1 << 20,
            most_threads: 128,
        }
    }
}

/// Which reads change the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// None.
    #[default]
    Never,
    /// The first after a change, and one a day.
    Relative,
    /// All that the server sees.
    Always,
}
