//! Opening the file system that a command works on.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::{
    DeletedFiles, Filesystem, Inode, MountedFilesystem, OpenOptions, Overview, Rescue, Subvolume,
};
use larder_copy::new_inode;
use larder_device::{Access, Device as _, FileDevice, InUse};
use larder_fuse::usage::MountTable;
use larder_image::Opened;

use crate::devices;
use crate::ending::wait_for_ending_servers;
use crate::objects::url_at;
use crate::operand::parse_number;
use crate::outcome::{Outcome, exit_code};
use crate::place::{PlaceOptions, located};
use crate::present;
use crate::report::{self, LogLevel};
use crate::resync;
use crate::state;
use crate::target::{Target, is_image, mounted_path};
use crate::umask::umask;

/// Options that every command on an image has. They say how to open an image: with a path in a
/// mounted file system they are refused, since nothing there would obey them.
#[derive(Debug, Args)]
pub struct Source {
    /// Another device of the file system; may be given several times. Devices in the same directory
    /// are found
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Go on when devices are missing, if the others are enough
    #[arg(long)]
    degraded: bool,
    /// Read a damaged file system without some of what proves it sound, as the mount option rescue=:
    /// usebackuproot, ignorebadroots, ignoredatacsums, ignoremetacsums, ignoresuperflags, all; with
    /// colons between several
    #[arg(long, value_name = "HOW")]
    rescue: Option<Rescue>,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Commands that write go through the trees once: blocks that they have passed are not worth
/// caching, and memory that is used again is faster than new memory.
const WRITING_CACHE_BYTES: usize = 32 << 20;
/// For the same reason few blocks change again after a commit, which goes on while the command
/// works.
const WRITING_COMMIT_BYTES: usize = 64 << 20;

/// Options of commands that take `IMAGE:/path`; refused likewise with paths in mounted file
/// systems.
#[derive(Debug, Args)]
pub struct PathSource {
    #[command(flatten)]
    source: Source,
    /// Start paths at the subvolume with this id; 5 is the top level. As with mount, the default
    /// subvolume unless given
    #[arg(long, value_name = "ID", value_parser = parse_number)]
    subvolid: Option<u64>,
}

impl Source {
    fn options(&self) -> OpenOptions {
        let rescue = self.rescue.unwrap_or_default();
        OpenOptions::new().degraded(self.degraded).rescue(rescue).place(self.place.place())
    }

    /// Fails if `path` is in a mounted file system, and names the command to use instead.
    fn expect_image(&self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let way_out = if is_in_mounted_btrfs(path) {
            "; on a mount use the system's own commands"
        } else {
            ""
        };
        if url_at(path).is_some() {
            return Ok(());
        }
        ensure!(
            !path.is_dir(),
            "{shown}: is a directory, where an image file or a block device is needed{way_out}"
        );
        let may_be_image = way_out.is_empty() || self.place.is_given() || !path.is_file();
        ensure!(may_be_image || is_image(path), "{shown}: is no image of btrfs{way_out}");
        Ok(())
    }

    /// The devices of the file system on `image`.
    fn paths(&self, image: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let given: Vec<&Path> =
            [image].into_iter().chain(self.devices.iter().map(PathBuf::as_path)).collect();
        devices::all(&given, self.place.place())
    }

    /// Opens the file system on `image` and the other devices for writing. The command's changes
    /// are durable once it has called [`Filesystem::sync`]; if it is interrupted before, the file
    /// system is in the state of some commit.
    pub fn open_for_writing(&self, image: &Path) -> anyhow::Result<Filesystem> {
        Ok(self.open_for_resizing(image, image)?.0)
    }

    /// The same. Returns also the device at `path`, if it is an image file that can get another
    /// length: as long as it is held, nobody else opens it for writing.
    pub fn open_for_resizing(
        &self,
        image: &Path,
        path: &Path,
    ) -> anyhow::Result<(Filesystem, Option<Arc<FileDevice>>)> {
        let options = resync::shown(self.options().write(true));
        ensure!(self.rescue.is_none(), "{}: --rescue is for reading", image.display());
        ensure!(
            !state::is_earlier(image),
            "{}: an earlier state is never written",
            image.display()
        );
        let options = options.cache_bytes(WRITING_CACHE_BYTES).commit_bytes(WRITING_COMMIT_BYTES);
        self.expect_image(image)?;
        let paths = self.paths(image)?;
        wait_for_ending_servers(&located(&paths, self.place.place()));
        let open = || options.open_with_files(&paths);
        let (filesystem, files) = report::on_terminal(LogLevel::Warn, open)??;
        let file = files.into_iter().flatten().find(|file| Path::new(file.name()) == path);
        Ok((filesystem, file))
    }

    /// How many bytes a device of the file system could have, and whether it is an image file that
    /// can get another length.
    pub fn room(&self, device: &Path) -> anyhow::Result<(u64, bool)> {
        let opened = Opened::open(device, Access::ReadOnly, self.place.place())?;
        Ok((opened.device.len_bytes(), opened.file.is_some()))
    }

    /// Opens for writing the file system of `text`, an `IMAGE:/path`; `start` chooses the subvolume
    /// in which paths start.
    pub fn write(
        &self,
        text: &OsStr,
        start: impl FnOnce(&Filesystem) -> larder::Result<Subvolume>,
    ) -> anyhow::Result<Writing> {
        let image = Target::parse(text).image;
        let filesystem = self.open_for_writing(&image)?;
        let start = start(&filesystem)?;
        Ok(Writing { image, filesystem, start })
    }

    /// Opens the file system on `image` and the other devices.
    pub fn open(&self, image: &Path) -> anyhow::Result<Filesystem> {
        self.open_with(image, self.degraded)
    }

    /// Opens the file system on `image` however damaged it is, for reading.
    pub fn open_for_rescue(&self, image: &Path) -> anyhow::Result<Filesystem> {
        let rescue = self.rescue.or(Some(Rescue::ALL));
        let devices = self.devices.clone();
        let source = Self { devices, degraded: true, rescue, place: self.place };
        source.open_as(image, source.options().salvage(true))
    }

    /// Opens the file system on `image` however damaged it is, to learn the names of subvolumes.
    pub fn open_for_reading_names(&self, image: &Path) -> anyhow::Result<Filesystem> {
        Ok(self.options().degraded(true).rescue(Rescue::ALL).open(self.paths(image)?)?)
    }

    /// Finds the deleted files of the file system on `image`.
    pub fn find_deleted(&self, image: &Path) -> anyhow::Result<DeletedFiles> {
        ensure!(!state::is_earlier(image), "{}: --deleted searches all states", image.display());
        self.expect_image(image)?;
        let paths = self.paths(image)?;
        warn_if_in_use(&located(&paths, self.place.place()));
        Ok(state::search_shown(self.options()).find_deleted(&paths)?)
    }

    /// Opens the file system on `image` to learn which one it is, and its devices: that stays the
    /// same while others write.
    pub fn identify(&self, image: &Path) -> anyhow::Result<Filesystem> {
        self.expect_image(image)?;
        Ok(self.options().open(self.paths(image)?)?)
    }

    fn open_with(&self, image: &Path, degraded: bool) -> anyhow::Result<Filesystem> {
        self.open_as(image, self.options().degraded(degraded))
    }

    fn open_as(&self, image: &Path, options: OpenOptions) -> anyhow::Result<Filesystem> {
        let (image, generation) = state::split(image);
        self.expect_image(&image)?;
        let paths = self.paths(&image)?;
        warn_if_in_use(&located(&paths, self.place.place()));
        let options = state::search_shown(options).generation(generation);
        let filesystem = match self.rescue {
            Some(_) => report::on_terminal(LogLevel::Warn, || options.open(&paths))??,
            None => options.open(&paths)?,
        };
        if filesystem.needs_log_replay() {
            eprintln!(
                "WARNING: {}: a crash left a log; changes that were synced since the last commit are not shown",
                image.display()
            );
        }
        Ok(filesystem)
    }
}

impl Source {
    /// The path in `text`, if that lies in a mounted file system and not in an image.
    pub fn mounted_path<'a>(&self, text: &'a OsStr) -> anyhow::Result<Option<&'a Path>> {
        let Some(path) = mounted_path(text) else { return Ok(None) };
        if self.place.is_given() && path.is_file() {
            return Ok(None);
        }
        let shown = path.display();
        ensure!(
            self.devices.is_empty(),
            "{shown}: lies in a mounted file system, whose devices are known; leave out --device"
        );
        ensure!(
            !self.degraded,
            "{shown}: lies in a mounted file system; --degraded is said when it is mounted"
        );
        ensure!(
            self.rescue.is_none(),
            "{shown}: lies in a mounted file system; rescue= is said when it is mounted"
        );
        ensure!(
            !self.place.is_given(),
            "{shown}: lies in a mounted file system; leave out --partition and --offset"
        );
        Ok(Some(path))
    }

    /// The directory of a mounted file system in `text`, unless it is an image.
    pub fn mounted_directory<'a>(&self, text: &'a OsStr) -> anyhow::Result<Option<&'a Path>> {
        Ok(self.mounted_path(text)?.filter(|path| path.is_dir()))
    }

    /// The file system in `text`: an image, or a directory of a mounted one. Of an image that is
    /// mounted, the mount is asked.
    pub fn overview(&self, text: &OsStr) -> anyhow::Result<Box<dyn Overview>> {
        self.overview_with(text, self.degraded)
    }

    /// The same, also if devices are missing.
    pub fn overview_of_present(&self, text: &OsStr) -> anyhow::Result<Box<dyn Overview>> {
        self.overview_with(text, true)
    }

    fn overview_with(&self, text: &OsStr, degraded: bool) -> anyhow::Result<Box<dyn Overview>> {
        if let Some(path) = self.mounted_directory(text)? {
            return Ok(Box::new(MountedFilesystem::open(path)?));
        }
        let is_plain = self.devices.is_empty()
            && !self.degraded
            && self.rescue.is_none()
            && !self.place.is_given();
        let Target { image, path } = Target::parse(text);
        if is_plain && path == b"/" && !state::is_earlier(&image) {
            let devices = devices::named(&[&image])?;
            if let Some(mounted) = devices.first().and_then(|device| present::mount_of(device)) {
                return Ok(Box::new(mounted));
            }
        }
        Ok(Box::new(self.open_at(text, degraded)?.0))
    }

    /// The file system of `text`, an `IMAGE:/path` or a path of a mounted one, and the id of the
    /// subvolume there.
    pub fn overview_at(&self, text: &OsStr) -> anyhow::Result<(Box<dyn Overview>, u64)> {
        if let Some(path) = self.mounted_path(text)? {
            let mounted = MountedFilesystem::open(path)?;
            let id = mounted.subvolume_id()?;
            return Ok((Box::new(mounted), id));
        }
        let (filesystem, id) = self.open_at(text, self.degraded)?;
        Ok((Box::new(filesystem), id))
    }

    /// Opens the file system of `text`, an `IMAGE:/path`; with the id of the subvolume there.
    fn open_at(&self, text: &OsStr, degraded: bool) -> anyhow::Result<(Filesystem, u64)> {
        let target = Target::parse(text);
        let filesystem = self.open_with(&target.image, degraded)?;
        let found = filesystem.subvolume("/")?.resolve(target.path_os());
        let id = found.with_context(|| on_image(&target.image))?.subvolume_id();
        Ok((filesystem, id))
    }
}

impl PathSource {
    /// For an image that the options do not concern: its default subvolume, on one device.
    pub fn of_other_image(&self) -> Self {
        let (devices, place) = (Vec::new(), PlaceOptions::default());
        let Source { degraded, rescue, .. } = self.source;
        let source = Source { devices, degraded, rescue, place };
        Self { source, subvolid: None }
    }

    fn start(&self, filesystem: &Filesystem) -> larder::Result<Subvolume> {
        match self.subvolid {
            Some(id) => filesystem.subvolume_by_id(id),
            None => filesystem.default_subvolume(),
        }
    }

    /// The path in `text`, if that lies in a mounted file system and not in an image.
    pub fn mounted_path<'a>(&self, text: &'a OsStr) -> anyhow::Result<Option<&'a Path>> {
        let path = self.source.mounted_path(text)?;
        ensure!(
            path.is_none() || self.subvolid.is_none(),
            "{}: lies in a mounted file system; --subvolid says where paths in an image start",
            text.display()
        );
        Ok(path)
    }

    /// Opens for writing the file system of `text`, an `IMAGE:/path`.
    pub fn write(&self, text: &OsStr) -> anyhow::Result<Writing> {
        self.source.write(text, |filesystem| self.start(filesystem))
    }

    /// Opens for writing the file system of `text`, an `IMAGE:/path`, runs `change` and makes its
    /// changes durable. `change` returns how many operations failed; its errors name the image.
    pub fn change(
        &self,
        text: &OsStr,
        change: impl FnOnce(&Writing) -> anyhow::Result<usize>,
    ) -> Outcome {
        let writing = self.write(text)?;
        let named = || on_image(&writing.image);
        let failures = change(&writing).with_context(named)?;
        writing.end(failures)
    }

    /// Finds the inode of `text`, an `IMAGE:/path`. A symbolic link at its end is followed on
    /// demand.
    pub fn find(&self, text: &OsStr, follow: bool) -> anyhow::Result<Inode> {
        let target = Target::parse(text);
        let filesystem = self.source.open(&target.image)?;
        let subvolume = self.start(&filesystem)?;
        let path = OsString::from(target.path_os());
        let found = if follow { subvolume.resolve(&path) } else { subvolume.lookup(&path) };
        found.with_context(|| on_image(&target.image))
    }
}

/// The subvolume in which the paths of a command start, open for writing.
pub struct Writing {
    image: PathBuf,
    /// The file system.
    pub filesystem: Filesystem,
    /// Where paths start.
    pub start: Subvolume,
}

impl Writing {
    /// Whether `image` is the one that is open.
    pub fn is_on(&self, image: &Path) -> bool {
        let canonical = |path: &Path| path.canonicalize().ok();
        image == self.image || canonical(image) == canonical(&self.image)
    }

    /// Fails if `image` is an earlier state of the one that is open: its blocks go while this one
    /// is written.
    pub fn expect_not_earlier(&self, image: &Path) -> anyhow::Result<()> {
        let (base, generation) = state::split(image);
        ensure!(
            generation.is_none() || !self.is_on(&base),
            "{}: an earlier state of {}, which is written; copy from it to this system first",
            image.display(),
            self.image.display()
        );
        Ok(())
    }

    /// The name of `path` in the file system as users write it.
    pub fn shown(&self, path: &Path) -> PathBuf {
        let mut shown = self.name();
        shown.push(path);
        shown.into()
    }

    /// How users name the file system: it comes before a path in it.
    pub fn name(&self) -> OsString {
        [self.image.as_os_str(), OsStr::new(":")].into_iter().collect()
    }

    /// The path in the file system of `text`, an `IMAGE:/path`.
    pub fn path(&self, text: &OsStr) -> anyhow::Result<OsString> {
        let target = Target::parse(text);
        if target.image != self.image {
            let image = self.image.display();
            bail!("{}: not in the file system on {image}; {image}:/PATH is", text.display());
        }
        Ok(target.path_os().to_owned())
    }

    /// Creates a file with these permissions, minus the umask.
    pub fn create_file(
        &self,
        path: impl AsRef<Path>,
        permissions: u32,
    ) -> larder::Result<larder::File> {
        let new = new_inode(0o100_000 | permissions, umask());
        self.start.create_inode(path, &new)?.into_file()
    }

    /// Makes all changes durable. Returns the exit code of a command with so many failures.
    pub fn end(self, failures: usize) -> Outcome {
        // A subvolume may have been removed while something of it was still open here.
        self.filesystem.delete_unlinked();
        self.filesystem.sync()?;
        Ok(exit_code(failures))
    }
}

/// The beginning of an error about something on `image`.
pub fn on_image(image: &Path) -> String {
    format!("{}:", image.display())
}

/// Whether a path may lie on a mount of larder's or of the kernel's btrfs.
fn is_in_mounted_btrfs(path: &Path) -> bool {
    const BTRFS: rustix::fs::FsWord = 0x9123_683E;
    const FUSE: rustix::fs::FsWord = 0x6573_5546;
    rustix::fs::statfs(path).is_ok_and(|found| [BTRFS, FUSE].contains(&found.f_type))
}

/// Reports bad copies: the content was sound, but the file system is not as it should be.
pub fn warn_of_bad_copies(filesystem: &Filesystem) {
    let stats = filesystem.stats().volume;
    for device in &stats.devices {
        let bad = [
            (device.read_errors, "read errors"),
            (device.corruption_errors, "corrupt copies"),
            (device.generation_errors, "stale copies"),
        ];
        let bad: Vec<String> = bad
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !bad.is_empty() {
            let devid = device.devid;
            eprintln!(
                "WARNING: device {devid}: {}, read from elsewhere where it could be",
                bad.join(", ")
            );
        }
    }
    if stats.unverified > 0 {
        eprintln!(
            "WARNING: {} blocks and sectors were read although no checksum proves them right",
            stats.unverified
        );
    }
    if stats.rebuilt > 0 {
        eprintln!("WARNING: {} blocks and sectors were rebuilt from parity", stats.rebuilt);
    }
}

/// Warns if another program may be writing to a device: reads may then be torn. Waits for servers
/// whose mounts have ended.
pub fn warn_if_in_use(paths: &[impl AsRef<Path>]) {
    for (path, usage) in uses(paths) {
        warn_of_use(&path, &usage);
    }
}

/// Fails if another program may be writing to a device, with the way to read it all the same. Warns
/// of other uses. Waits for servers whose mounts have ended.
pub fn expect_no_writer(paths: &[impl AsRef<Path>]) -> anyhow::Result<()> {
    for (path, usage) in uses(paths) {
        let shown = path.display();
        ensure!(
            !usage.may_change() || is_only_read(&path, &usage),
            "{shown}: {}; --force reads it while it may change",
            with_way_out(&usage)
        );
        warn_of_use(&path, &usage);
    }
    Ok(())
}

/// Fails if a device is in use, with the place. Waits for servers whose mounts have ended.
pub fn expect_no_user(paths: &[impl AsRef<Path>]) -> anyhow::Result<()> {
    match uses(paths).first() {
        None => Ok(()),
        Some((path, usage)) => bail!("{}: {}", path.display(), with_way_out(usage)),
    }
}

fn uses(paths: &[impl AsRef<Path>]) -> Vec<(PathBuf, InUse)> {
    wait_for_ending_servers(paths);
    let usage = |path: &Path| Some((path.to_owned(), larder_device::in_use(path).ok()??));
    paths.iter().filter_map(|path| usage(path.as_ref())).collect()
}

fn warn_of_use(path: &Path, usage: &InUse) {
    let (path, usage) = (path.display(), with_way_out(usage));
    eprintln!("WARNING: {path}: {usage}; the data that is read may be inconsistent");
}

/// Whether a mount of larder for reading is the use of what is at `path`.
fn is_only_read(path: &Path, usage: &InUse) -> bool {
    larder_mount(usage).is_some() && larder_device::has_writer(path).is_ok_and(|has| !has)
}

/// Describes a use to a reader. A mount of larder can be named in place of its image.
fn with_way_out(usage: &InUse) -> String {
    match larder_mount(usage) {
        Some(path) => format!("{usage}, or name {} instead", path.display()),
        None => usage.to_string(),
    }
}

/// The mount of larder that is the use, if it is one.
fn larder_mount(usage: &InUse) -> Option<&Path> {
    let is_ours = |path: &&Path| {
        MountTable::of_this_process().is_ok_and(|table| table.ours_at(path).is_some())
    };
    usage.mounted_at().filter(is_ours)
}
