//! Opening.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_device::{Access, Device, FileDevice};
use larder_filesystem::{ResyncProgress, Tuning, WriteCompression, WriteOptions, WritePolicy};
use larder_volume::Volume;

use crate::{Filesystem, Result};

/// Tree blocks kept in memory unless told otherwise.
const CACHE_BYTES: usize = 128 << 20;
/// However small the cache is, as many bytes of changed tree blocks wait for the next commit unless told otherwise.
const LEAST_COMMIT_BYTES: usize = 128 << 20;
/// Data that waits to be written back takes at most as much unless told otherwise.
const DIRTY_BYTES: usize = 64 << 20;
/// As the kernel.
const COMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// How to open a file system: for reading, unless it says otherwise.
#[derive(Clone)]
pub struct OpenOptions {
    write: bool,
    is_mounted: bool,
    degraded: bool,
    cache_bytes: usize,
    commit_interval: Option<Duration>,
    commit_bytes: Option<usize>,
    dirty_bytes: usize,
    discard: bool,
    tuning: Tuning,
    compression: Option<WriteCompression>,
    write_policy: WritePolicy,
    resync_progress: Arc<dyn Fn(ResyncProgress) + Send + Sync>,
}

impl OpenOptions {
    /// For reading, with all devices.
    pub fn new() -> Self {
        Self {
            write: false,
            is_mounted: false,
            degraded: false,
            cache_bytes: CACHE_BYTES,
            commit_interval: Some(COMMIT_INTERVAL),
            commit_bytes: None,
            dirty_bytes: DIRTY_BYTES,
            discard: false,
            tuning: Tuning::default(),
            compression: None,
            write_policy: WritePolicy::default(),
            resync_progress: Arc::new(|_| ()),
        }
    }

    /// For writing too. What is done is durable after [`Filesystem::sync`] or
    /// [`Inode::sync`](crate::Inode::sync); dropping the last handle without it leaves what the
    /// last commit made durable. No other program can have the devices open for writing meanwhile.
    ///
    /// Opening fails with [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) where a sound file
    /// system can only be read: with RAID5 or RAID6, with features that allow reading only. Logs
    /// that a crash left are replayed, which is a commit.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing although it is mounted: for the server of those mounts, which knows that the kernel changes nothing
    /// meanwhile.
    #[must_use]
    pub fn mounted(mut self, is_mounted: bool) -> Self {
        self.is_mounted = is_mounted;
        self
    }

    /// Also when devices are missing, as long as what is there is enough to read everything.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// The most bytes of tree blocks to keep in memory: 128 MiB unless set, 64 blocks at least. Besides, there
    /// are those that have changed since the last commit.
    #[must_use]
    pub fn cache_bytes(mut self, cache_bytes: usize) -> Self {
        self.cache_bytes = cache_bytes;
        self
    }

    /// How often to commit what was done in a file system open for writing: every 30 seconds unless set,
    /// with `None` only when asked to or when room is needed.
    #[must_use]
    pub fn commit_interval(mut self, commit_interval: Option<Duration>) -> Self {
        self.commit_interval = commit_interval;
        self
    }

    /// Where there are commits in the background, how many bytes of changed tree blocks begin one: twice
    /// [`cache_bytes`](Self::cache_bytes) unless set, and 128 MiB at least. Fewer take less memory, and more of the
    /// writing goes on while others work; but what changes again and again is written more often.
    #[must_use]
    pub fn commit_bytes(mut self, commit_bytes: usize) -> Self {
        self.commit_bytes = Some(commit_bytes);
        self
    }

    /// The most bytes of data that wait in memory to be written back: 64 MiB unless set. A thread that writes
    /// more waits until enough is written back. A lower bound also lets fewer names and inodes wait.
    #[must_use]
    pub fn dirty_bytes(mut self, dirty_bytes: usize) -> Self {
        self.dirty_bytes = dirty_bytes;
        self
    }

    /// Tells devices of a file system open for writing what space is needed no more, after each commit, so
    /// that disks can use it and image files give it back. Backup roots may then lead nowhere.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }

    /// Does things in other ways than the best, for measuring one against the other.
    #[doc(hidden)]
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Compresses what is written to a file system open for writing: files that do not say otherwise
    /// themselves, by the flags COMPRESS and NOCOMPRESS and the property `btrfs.compression`. Unless set,
    /// only files that ask for it are compressed.
    #[must_use]
    pub fn compression(mut self, compression: Option<WriteCompression>) -> Self {
        self.compression = compression;
        self
    }

    /// How new files are written to a file system open for writing: in place or not, with checksums or
    /// without, in trees or not.
    #[must_use]
    pub fn write_policy(mut self, write_policy: WritePolicy) -> Self {
        self.write_policy = write_policy;
        self
    }

    /// Tells `tell` how far opening for writing has come with copying to devices that missed
    /// commits what they missed. Of large devices that takes long. The process may end meanwhile:
    /// the next opening for writing begins again.
    #[must_use]
    pub fn resync_progress(
        mut self,
        tell: impl Fn(ResyncProgress) + Send + Sync + 'static,
    ) -> Self {
        self.resync_progress = Arc::new(tell);
        self
    }

    /// Opens the file system on the image files and block devices at `paths`, in any order.
    pub fn open<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> Result<Filesystem> {
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for path in paths {
            let access = match (self.write, self.is_mounted) {
                (true, true) => Access::ReadWriteMounted,
                (true, false) => Access::ReadWrite,
                (false, _) => Access::ReadOnly,
            };
            devices.push(Arc::new(FileDevice::open(path, access)?));
        }
        self.open_devices(devices)
    }

    /// Opens the file system on `devices`, in any order.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        let options = larder_volume::OpenOptions {
            degraded: self.degraded,
            write: self.write,
            ..Default::default()
        };
        let volume = Arc::new(Volume::open(devices, &options)?);
        let cache_bytes = self.cache_bytes;
        Ok(Filesystem::new(if self.write {
            let most_bytes = || cache_bytes.saturating_mul(2).max(LEAST_COMMIT_BYTES);
            let options = WriteOptions {
                cache_bytes,
                commit_interval: self.commit_interval,
                commit_bytes: self.commit_bytes.unwrap_or_else(most_bytes),
                dirty_bytes: self.dirty_bytes,
                tuning: self.tuning,
                resync_progress: &*self.resync_progress,
            };
            let filesystem = larder_filesystem::Filesystem::open_writable(volume, &options)?;
            self.apply_to(&filesystem)?;
            filesystem
        } else {
            larder_filesystem::Filesystem::open(volume, cache_bytes)?
        }))
    }

    /// Makes `filesystem`, which is open for writing, go on with what these options say about
    /// commits and about how data is written. What they say about devices and memory counts only
    /// for opening.
    pub fn apply(&self, filesystem: &Filesystem) -> Result<()> {
        if let Some(interval) = self.commit_interval {
            filesystem.set_commit_interval(interval);
        }
        self.apply_to(filesystem.inner())
    }

    fn apply_to(&self, filesystem: &larder_filesystem::Filesystem) -> Result<()> {
        filesystem.set_compression(self.compression)?;
        filesystem.set_discards(self.discard)?;
        Ok(filesystem.set_write_policy(self.write_policy)?)
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("write", &self.write)
            .field("degraded", &self.degraded)
            .finish_non_exhaustive()
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}
