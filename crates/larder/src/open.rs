//! Opening.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_device::{Access, Device, FileDevice};
use larder_filesystem::{ResyncProgress, Tuning, WriteCompression, WriteOptions, WritePolicy};
use larder_image::{Opened, Place};
use larder_rescue::{
    Found, Past, Progress as SearchProgress, RescueError, find_newest_state, find_state, salvage,
};
use larder_volume::{OpenError, Rescue, StateRoot, Volume};

use crate::deleted::DeletedFiles;
use crate::find::is_seed_at;
use crate::{Filesystem, Result};

/// The default for tree blocks in memory.
const CACHE_BYTES: usize = 128 << 20;
/// By default, a commit begins after so many bytes of changed tree blocks, however small the cache
/// is.
const LEAST_COMMIT_BYTES: usize = 128 << 20;
/// The default bound on dirty data.
const DIRTY_BYTES: usize = 64 << 20;
/// As in the kernel.
const COMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// How to open a file system: by default for reading.
#[derive(Clone)]
pub struct OpenOptions {
    write: bool,
    is_mounted: bool,
    place: Place,
    degraded: bool,
    rescue: Rescue,
    salvage: bool,
    generation: Option<u64>,
    cache_bytes: usize,
    objects_bytes: u64,
    commit_interval: Option<Duration>,
    commit_bytes: Option<usize>,
    dirty_bytes: usize,
    discard: Option<bool>,
    check_every: Option<NonZeroU64>,
    tuning: Tuning,
    compression: Option<WriteCompression>,
    write_policy: WritePolicy,
    resync_progress: Arc<dyn Fn(ResyncProgress) + Send + Sync>,
    search_progress: Arc<dyn Fn(SearchProgress) + Send + Sync>,
}

impl OpenOptions {
    /// For reading, with all devices.
    pub fn new() -> Self {
        Self {
            write: false,
            is_mounted: false,
            place: Place::Found,
            degraded: false,
            rescue: Rescue::default(),
            salvage: false,
            generation: None,
            cache_bytes: CACHE_BYTES,
            objects_bytes: larder_image::OBJECTS_BYTES,
            commit_interval: Some(COMMIT_INTERVAL),
            commit_bytes: None,
            dirty_bytes: DIRTY_BYTES,
            discard: None,
            check_every: None,
            tuning: Tuning::default(),
            compression: None,
            write_policy: WritePolicy::default(),
            resync_progress: Arc::new(|_| ()),
            search_progress: Arc::new(|_| ()),
        }
    }

    /// For writing too. Changes are durable after [`Filesystem::sync`] or
    /// [`Inode::sync`](crate::Inode::sync); if the last handle is dropped without it, the last
    /// commit counts. No other program can have the devices open for writing meanwhile.
    ///
    /// Opening fails with [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) if a sound file
    /// system can only be read: with RAID5 or RAID6, with features that allow reading only, a seed,
    /// a metadata dump, or one that the kernel noted to be damaged. Logs that a crash left are
    /// replayed, which is a commit.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing although it is mounted: for the server of those mounts, which knows that the
    /// kernel changes nothing meanwhile.
    #[must_use]
    pub fn mounted(mut self, is_mounted: bool) -> Self {
        self.is_mounted = is_mounted;
        self
    }

    /// Also when devices are missing, as long as the others are enough to read everything.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// What to do without if the file system is damaged. With
    /// [`use_backup_root`](Rescue::use_backup_root), the newest earlier commit whose roots can be
    /// read is opened if those of the last one cannot: one that a superblock names, or one that is
    /// found on the devices. It is open for reading only, and blocks below its roots may be gone.
    /// With [`ignore_bad_roots`](Rescue::ignore_bad_roots) too, chunks and trees are put together
    /// from all blocks on the devices if the chunk tree or every root is lost. All else is for
    /// reading.
    #[must_use]
    pub fn rescue(mut self, rescue: Rescue) -> Self {
        self.rescue = rescue;
        self
    }

    /// Looks for lost tree blocks before anything is read, by reading all metadata on the devices
    /// once, if [`rescue`](Self::rescue) does without bad roots and may use others. If blocks are
    /// lost that lead to files, older ones take their place, and what they concern is
    /// [in doubt](crate::Inode::is_in_doubt). Without this, that happens only if the chunk tree or
    /// the root of the root tree cannot be read.
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// The state after the commit of this generation, in place of the last one: for reading only.
    /// Unless a superblock names its root, all devices are searched for it. Space that it had in
    /// use may have been written since: tree blocks and data can be gone.
    ///
    /// Opening fails with [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if its root is not
    /// there any more.
    #[must_use]
    pub fn generation(mut self, generation: Option<u64>) -> Self {
        self.generation = generation;
        self
    }

    /// Calls `tell` with the progress of searching devices for an earlier state.
    #[must_use]
    pub fn search_progress(
        mut self,
        tell: impl Fn(SearchProgress) + Send + Sync + 'static,
    ) -> Self {
        self.search_progress = Arc::new(tell);
        self
    }

    /// The most bytes of tree blocks to keep in memory: 128 MiB by default, 64 blocks at least.
    /// Blocks that changed since the last commit are not counted.
    #[must_use]
    pub fn cache_bytes(mut self, cache_bytes: usize) -> Self {
        self.cache_bytes = cache_bytes;
        self
    }

    /// The most bytes of memory for a device on object storage, with its cache and what is on its
    /// way: 384 MiB by default, 32 MiB at least.
    #[must_use]
    pub fn objects_bytes(mut self, objects_bytes: u64) -> Self {
        self.objects_bytes = objects_bytes;
        self
    }

    /// Where the file system is in the image files and block devices at the paths: by default where
    /// btrfs is found.
    #[must_use]
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// How often to commit in a file system that is open for writing: every 30 seconds by default.
    /// With `None`, commits happen only when a caller asks and when space is needed.
    #[must_use]
    pub fn commit_interval(mut self, commit_interval: Option<Duration>) -> Self {
        self.commit_interval = commit_interval;
        self
    }

    /// With commits in the background, one begins after so many bytes of changed tree blocks: by
    /// default twice [`cache_bytes`](Self::cache_bytes), and 128 MiB at least. Fewer bytes take
    /// less memory, and more of the writing goes on while threads work; but blocks that change
    /// again and again are written more often.
    #[must_use]
    pub fn commit_bytes(mut self, commit_bytes: usize) -> Self {
        self.commit_bytes = Some(commit_bytes);
        self
    }

    /// The bound on dirty data, in bytes: 64 MiB by default. A thread that writes more waits for
    /// writeback. A lower bound also means fewer delayed names and inodes.
    #[must_use]
    pub fn dirty_bytes(mut self, dirty_bytes: usize) -> Self {
        self.dirty_bytes = dirty_bytes;
        self
    }

    /// Discards freed space after each commit in a file system that is open for writing, so that
    /// disks can use it and image files shrink, or does not. Backup roots may then lead nowhere. By
    /// default only object storage learns what is free.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = Some(discard);
        self
    }

    /// In debug builds, checks the kept state of every n-th commit that callers ask for, and panics
    /// if it has damage. The variable `LARDER_CHECK_EVERY` does so for all file systems.
    #[doc(hidden)]
    #[must_use]
    pub fn check_every(mut self, commits: u64) -> Self {
        self.check_every = NonZeroU64::new(commits);
        self
    }

    /// Selects other implementations, for measuring one against another.
    #[doc(hidden)]
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Compresses new data in a file system that is open for writing, unless the file says
    /// otherwise by the flags COMPRESS and NOCOMPRESS or the property `btrfs.compression`. By
    /// default, only files that ask for it are compressed.
    #[must_use]
    pub fn compression(mut self, compression: Option<WriteCompression>) -> Self {
        self.compression = compression;
        self
    }

    /// How new files are written in a file system that is open for writing: in place or not, with
    /// checksums or without, inline or not.
    #[must_use]
    pub fn write_policy(mut self, write_policy: WritePolicy) -> Self {
        self.write_policy = write_policy;
        self
    }

    /// Calls `tell` with the progress of opening for writing, which copies missed commits to
    /// devices that missed them. With large devices that takes long. The process may end meanwhile:
    /// the next opening for writing begins again.
    #[must_use]
    pub fn resync_progress(
        mut self,
        tell: impl Fn(ResyncProgress) + Send + Sync + 'static,
    ) -> Self {
        self.resync_progress = Arc::new(tell);
        self
    }

    /// Opens the file system on the image files and block devices at `paths`, in any order. Each may
    /// be a whole disk, with the file system in a [partition](Self::place).
    pub fn open<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> Result<Filesystem> {
        self.open_devices(self.devices(paths)?)
    }

    /// The same as [`open`](Self::open). Returns also those of `paths` that are regular files as a
    /// whole, in their order, to change their length: nobody else writes to one that is held.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with_files<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<(Filesystem, Vec<Option<Arc<FileDevice>>>)> {
        let opened = self.opened(paths)?;
        let files = opened.iter().map(|opened| opened.file.clone()).collect();
        let devices = opened.into_iter().map(|opened| opened.device).collect();
        Ok((self.open_devices(devices)?, files))
    }

    /// Finds the deleted files of the file system at `paths`, by reading all metadata on its devices
    /// once. Nothing may write there meanwhile.
    pub fn find_deleted<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<DeletedFiles> {
        let past = Past::find(self.devices(paths)?, &self.tell_search()).map_err(open_error)?;
        Ok(DeletedFiles::new(past, self.cache_bytes))
    }

    /// The devices at `paths`.
    fn devices<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Vec<Arc<dyn Device>>> {
        Ok(self.opened(paths)?.into_iter().map(|opened| opened.device).collect())
    }

    fn opened<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> Result<Vec<Opened>> {
        let mut opened = Vec::new();
        let paths: Vec<P> = paths.into_iter().collect();
        for path in paths.iter().map(AsRef::as_ref) {
            // A seed may belong to other file systems too, and is only read.
            let is_seed = || paths.len() > 1 && is_seed_at(path, self.place);
            let access = match (self.write, self.is_mounted) {
                (false, _) => Access::ReadOnly,
                _ if is_seed() => Access::ReadOnly,
                (true, true) => Access::ReadWriteMounted,
                (true, false) => Access::ReadWrite,
            };
            let memory = self.objects_bytes;
            opened.push(Opened::open_within(path, access, self.place, memory)?);
        }
        Ok(opened)
    }

    /// Opens the file system on `devices`, in any order.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        let options = larder_volume::OpenOptions {
            degraded: self.degraded,
            rescue: self.rescue,
            state: self.state(&devices)?,
            write: self.write,
            ..Default::default()
        };
        let volume = self.volume(devices, &options)?;
        let volume = Arc::new(volume);
        let cache_bytes = self.cache_bytes;
        Ok(if self.write {
            let most_bytes = || cache_bytes.saturating_mul(2).max(LEAST_COMMIT_BYTES);
            let options = WriteOptions {
                cache_bytes,
                commit_interval: self.commit_interval,
                commit_bytes: self.commit_bytes.unwrap_or_else(most_bytes),
                dirty_bytes: self.dirty_bytes,
                tuning: self.tuning,
                resync_progress: &*self.resync_progress,
            };
            let filesystem = options.open(volume)?;
            self.apply_to(&filesystem)?;
            crate::checked_commits::start(&filesystem, self.check_every);
            filesystem
        } else {
            Filesystem::open(volume, cache_bytes)?
        })
    }

    /// Opens a volume: of a damaged file system the best that is left, as far as `rescue` allows.
    fn volume(
        &self,
        devices: Vec<Arc<dyn Device>>,
        options: &larder_volume::OpenOptions,
    ) -> Result<Volume> {
        let opened = Volume::open(devices.clone(), options);
        let Rescue { use_backup_root, ignore_bad_roots, .. } = self.rescue;
        if self.write || options.state.is_some() || !use_backup_root {
            return Ok(opened?);
        }
        match &opened {
            Ok(volume) if volume.has_root_tree() && !(self.salvage && ignore_bad_roots) => {
                return Ok(opened?);
            }
            Err(OpenError::MissingDevices { .. }) if !self.degraded => return Ok(opened?),
            _ => {}
        }
        let found = if ignore_bad_roots {
            salvage(&devices, self.rescue, &self.tell_search())
        } else {
            let state = find_newest_state(devices.clone(), &self.tell_search());
            state.map(|state| state.map_or(Found::Nothing, Found::Earlier))
        };
        match found.map_err(open_error)? {
            Found::Sound | Found::Nothing => Ok(opened?),
            Found::Earlier(state) => {
                let generation = state.generation;
                tracing::warn!(
                    "no superblock leads to roots that can be read: shown as after generation \
                     {generation}, whose roots are still on a device"
                );
                let options = larder_volume::OpenOptions { state: Some(state), ..*options };
                Ok(Volume::open(devices, &options)?)
            }
            Found::Salvaged(volume) => {
                let lost = opened.err().map(|error| format!(" ({error})")).unwrap_or_default();
                tracing::warn!(
                    "tree blocks are lost{lost}: shown as put together from all blocks that are left"
                );
                Ok(*volume)
            }
        }
    }

    /// The root of the state to open, unless that is the last one.
    fn state(&self, devices: &[Arc<dyn Device>]) -> Result<Option<StateRoot>> {
        let Some(generation) = self.generation else { return Ok(None) };
        let found = find_state(devices.to_vec(), generation, &self.tell_search());
        Ok(Some(found.map_err(open_error)?))
    }

    fn tell_search(&self) -> impl Fn(SearchProgress) -> ControlFlow<()> + Sync {
        |now| {
            (self.search_progress)(now);
            ControlFlow::Continue(())
        }
    }

    /// Opens the newest state of a file system that is open for reading, if its device has another
    /// one by now: on object storage, somebody may write meanwhile. `before` goes on to show its own
    /// state.
    pub fn open_newer(&self, before: &Filesystem) -> Result<Option<Filesystem>> {
        let Some(devices) = before.volume().newer_devices()? else { return Ok(None) };
        self.open_devices(devices).map(Some)
    }

    /// Applies these options to `filesystem`, which is open for writing, as far as they concern
    /// commits and how data is written. Options about devices and memory count only for opening.
    pub fn apply(&self, filesystem: &Filesystem) -> Result<()> {
        if let Some(interval) = self.commit_interval {
            filesystem.set_commit_interval(interval);
        }
        self.apply_to(filesystem)
    }

    fn apply_to(&self, filesystem: &Filesystem) -> Result<()> {
        filesystem.set_compression(self.compression)?;
        filesystem.set_discards(self.discard)?;
        filesystem.set_write_policy(self.write_policy)
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

fn open_error(error: RescueError) -> OpenError {
    match error {
        RescueError::Superblock(error) => error.into(),
        RescueError::Open(error) => error,
        RescueError::NoDevices => OpenError::NoDevices,
        RescueError::Stopped => unreachable!("nobody stops it"),
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}
