//! How to mount, and how to serve.

use std::ffi::OsString;
use std::time::Duration;

use larder_format::OwnerMap;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The image file or device: what the table of mounts shows as the source. Where sync(2) can
    /// reach the mount, the table shows a loop device that is attached to it.
    pub source: OsString,
    /// Refuses all changes.
    pub read_only: bool,
    /// Users other than the one who mounts have access too.
    pub allow_other: bool,
    /// Setuid bits have no effect. This is always so unless root mounts.
    pub nosuid: bool,
    /// Device nodes have no effect. This is always so unless root mounts.
    pub nodev: bool,
    /// Programs cannot be run.
    pub noexec: bool,
    /// Symbolic links are not followed. Only root can ask for that.
    pub nosymfollow: bool,
    /// Options of SELinux, by name: labels of the file system, of its root, of files without one.
    pub labels: Vec<(&'static str, String)>,
    /// Requests come through rings of io_uring where the kernel offers them and this process may
    /// use them.
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
            nosymfollow: false,
            labels: Vec::new(),
            io_uring: true,
            awake: true,
        }
    }
}

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Users may delete subvolumes that they could delete if they were directories.
    pub user_subvol_rm_allowed: bool,
    /// Which reads change the time of last access.
    pub access_times: AccessTimes,
    /// Directories keep their times of last access.
    pub nodiratime: bool,
    /// fsync commits the whole file system.
    pub notreelog: bool,
    /// The kernel caches what programs write, and writes it back later: a program learns from fsync
    /// or close of errors that write(2) would have returned.
    pub writeback_cache: bool,
    /// From the users and groups that programs see to those that are stored. With ranges, ids in
    /// none are not shown, and nothing is stored for them.
    pub owner_map: OwnerMap,
    /// How many inodes the server remembers for the kernel; those that only a listing showed count
    /// for a thirty-second. Above that it asks the kernel to drop unused inodes, which Linux 6.18 and
    /// newer do.
    pub most_nodes: usize,
    /// The most bytes that one request writes or reads: a power of two, from 64 KiB to 1 MiB. Each
    /// thread has memory for two of them.
    pub most_io_bytes: usize,
    /// The most threads that serve requests at a time, besides those that wait for the kernel to
    /// act on a notice. Over rings there are two for each processor at least.
    pub most_threads: usize,
    /// The server shows the newest state of its devices, which somebody else writes: an older one for
    /// no longer than this.
    pub follow: Option<Duration>,
}

/// The kernel may use what it was told for so long if nobody else changes the file system, in
/// seconds: a year, which is for ever.
const FOR_EVER: u64 = 365 * 24 * 3600;

impl ServerOptions {
    /// How long the kernel may use names and attributes that it was told, in seconds.
    pub(crate) fn valid_seconds(&self) -> u64 {
        self.follow.map_or(FOR_EVER, |interval| interval.as_secs() / 4)
    }

    /// How long a server that follows waits between two looks: what the kernel was told just before
    /// a look is still valid for a while.
    pub fn time_between_looks(&self) -> Option<Duration> {
        let valid = Duration::from_secs(self.valid_seconds());
        self.follow.map(|interval| interval.saturating_sub(valid))
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            user_subvol_rm_allowed: false,
            access_times: AccessTimes::default(),
            nodiratime: false,
            notreelog: false,
            writeback_cache: false,
            owner_map: OwnerMap::default(),
            most_nodes: 1 << 17,
            most_io_bytes: 1 << 20,
            most_threads: 128,
            follow: None,
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
    /// All reads that reach the server.
    Always,
}
