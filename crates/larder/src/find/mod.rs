//! Finding the devices of a file system.
//!
//! # Invariants
//! - Nothing is chosen for the caller: two devices that claim to be the same one are an error.
//! - Devices that cannot be read are left out.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use larder_device::{Access, DeviceError};
use larder_format::superblock::SUPER_FLAG_SEEDING;
use larder_format::{Superblock, Uuid};
use larder_image::Place;
use larder_platform::{FileId, FileTypeExt};
use larder_volume::{MissingDevice, OpenError, Volume};

#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::block_devices;
#[cfg(target_os = "linux")]
pub use self::linux::block_devices;
use crate::Result;

/// A name that a file system has on its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesystemName {
    /// Its uuid.
    Uuid(Uuid),
    /// Its label.
    Label(Vec<u8>),
}

impl FilesystemName {
    fn is_of(&self, superblock: &Superblock) -> bool {
        match self {
            Self::Uuid(uuid) => superblock.fsid() == *uuid,
            Self::Label(label) => superblock.label() == label,
        }
    }

    /// The link that udev makes to one of its devices.
    fn link(&self) -> Option<PathBuf> {
        let by_uuid = |uuid: &Uuid| format!("/dev/disk/by-uuid/{uuid}").into();
        match self {
            Self::Uuid(uuid) => Some(by_uuid(uuid)),
            Self::Label(label) => {
                let label = std::str::from_utf8(label).ok()?;
                let is_plain =
                    |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
                label.chars().all(is_plain).then(|| format!("/dev/disk/by-label/{label}").into())
            }
        }
    }
}

impl fmt::Display for FilesystemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => write!(f, "UUID={uuid}"),
            Self::Label(label) => write!(f, "LABEL={}", String::from_utf8_lossy(label)),
        }
    }
}

/// The block devices of the file system with this name, among those that the kernel knows: disks,
/// partitions, attached loop devices. For a mount of larder's, the image that it is from.
///
/// # Errors
/// If there is none, or more than one.
pub fn find_filesystem(name: &FilesystemName) -> Result<Vec<PathBuf>> {
    let failed = |kind, text: String| DeviceError::Open {
        device: name.to_string(),
        source: io::Error::new(kind, text),
    };
    let mut filesystems = devices_of_filesystems(|superblock| name.is_of(superblock));
    if filesystems.len() > 1 {
        let uuids: Vec<_> = filesystems.keys().map(|uuid| format!("UUID={uuid}")).collect();
        let text = format!("several file systems have this label: {}", uuids.join(", "));
        return Err(failed(io::ErrorKind::InvalidInput, text).into());
    }
    if let Some((_, devices)) = filesystems.pop_first() {
        let found = devices.paths().map_err(|text| failed(io::ErrorKind::InvalidInput, text));
        return Ok(found?);
    }
    // It may be there, and this user may not read it: opening it says so.
    match name.link().and_then(|link| link.canonicalize().ok()) {
        Some(device) => Ok(vec![device]),
        None => {
            let text = "no block device that can be read has it".to_owned();
            Err(failed(io::ErrorKind::NotFound, text).into())
        }
    }
}

/// The devices that the file system on `paths` has besides these, with those of its seeds: image
/// files in the same directories, and block devices. None are missing if `paths` are all. Beside a
/// URL nothing is looked for.
///
/// # Errors
/// If two files or devices claim to be the same device of it.
pub fn find_further_devices(paths: &[impl AsRef<Path>], place: Place) -> Result<Vec<PathBuf>> {
    if paths.iter().any(|path| larder_objects::is_url(path.as_ref().as_os_str())) {
        return Ok(Vec::new());
    }
    let known: Option<Vec<_>> =
        paths.iter().map(|path| superblock_of(path.as_ref(), place)).collect();
    let Some(known) = known else { return Ok(Vec::new()) };
    let Some(first) = known.first() else { return Ok(Vec::new()) };
    if known.iter().all(|superblock| superblock.num_devices.get() <= paths.len() as u64) {
        return Ok(Vec::new());
    }
    let devids: BTreeSet<u64> = known.iter().map(|it| it.dev_item.devid.get()).collect();
    let mut devices = Devices::default();
    let mut seeds = Vec::new();
    for path in beside(paths) {
        let Some(superblock) = superblock_of(&path, place) else { continue };
        if superblock.fsid() == first.fsid() {
            if !devids.contains(&superblock.dev_item.devid.get()) {
                devices.add(&superblock, path);
            }
        } else if superblock.flags.get() & SUPER_FLAG_SEEDING != 0 {
            seeds.push((superblock, path));
        }
    }
    let named = paths[0].as_ref().display().to_string();
    let one_each = |devices: Devices| {
        devices.paths().map_err(|text| DeviceError::Open {
            device: named.clone(),
            source: io::Error::new(io::ErrorKind::InvalidInput, text),
        })
    };
    let mut found = one_each(devices)?;
    // Only the chunk tree names the devices of seeds, and it may begin on one of them.
    while !seeds.is_empty() {
        let known = paths.iter().map(AsRef::as_ref).chain(found.iter().map(PathBuf::as_path));
        let missing = missing_of(known, place);
        let is_missing = |superblock: &Superblock| {
            missing.iter().any(|device| device.uuid == superblock.dev_item.uuid())
        };
        let mut wanted = Devices::default();
        for (superblock, path) in seeds.extract_if(.., |(superblock, _)| is_missing(superblock)) {
            wanted.add(&superblock, path);
        }
        let wanted = one_each(wanted)?;
        if wanted.is_empty() {
            break;
        }
        found.extend(wanted);
    }
    Ok(found)
}

/// The devices that the file system on `paths` has besides these, as far as its chunk tree can be
/// read. None if there is another reason why it cannot be opened, which opening it says.
fn missing_of<'p>(paths: impl Iterator<Item = &'p Path>, place: Place) -> Vec<MissingDevice> {
    let devices: Result<Vec<_>, _> =
        paths.map(|path| larder_image::open(path, Access::ReadOnly, place)).collect();
    let Ok(devices) = devices else { return Vec::new() };
    let options = larder_volume::OpenOptions { any_state: true, ..Default::default() };
    match Volume::open(devices, &options) {
        Err(OpenError::MissingDevices { missing, .. }) => missing,
        _ => Vec::new(),
    }
}

/// Whether the image file or block device at `path` belongs to a seed.
pub fn is_seed(path: impl AsRef<Path>) -> bool {
    is_seed_at(path.as_ref(), Place::Found)
}

/// The same, for what is at a place there.
pub(crate) fn is_seed_at(path: &Path, place: Place) -> bool {
    superblock_of(path, place)
        .is_some_and(|superblock| superblock.flags.get() & SUPER_FLAG_SEEDING != 0)
}

/// All file systems on block devices that the kernel knows and the caller may read, by their uuids.
/// For each its devices, or an error if two claim to be the same one.
///
/// Devices come and go: if one of these cannot be used, ask [`is_still_on`] before you call that an
/// error.
pub fn find_filesystems() -> BTreeMap<Uuid, Result<Vec<PathBuf>>> {
    find_where(|_| true)
}

/// Those that have one of `names`, of [all](find_filesystems). What is wrong with others does not
/// matter.
pub fn find_filesystems_named(names: &[FilesystemName]) -> BTreeMap<Uuid, Result<Vec<PathBuf>>> {
    find_where(|superblock| names.iter().any(|name| name.is_of(superblock)))
}

/// Whether all of `devices`, on which the file system `uuid` was found, still have a part of it. One
/// that has not was detached or written over meanwhile.
pub fn is_still_on(uuid: Uuid, devices: &[impl AsRef<Path>]) -> bool {
    devices.iter().all(|device| uuid_of(device) == Some(uuid))
}

fn find_where(is_wanted: impl Fn(&Superblock) -> bool) -> BTreeMap<Uuid, Result<Vec<PathBuf>>> {
    let named = |(uuid, devices): (Uuid, Devices)| {
        let failed = |text| DeviceError::Open {
            device: format!("UUID={uuid}"),
            source: io::Error::new(io::ErrorKind::InvalidInput, text),
        };
        (uuid, devices.paths().map_err(|text| failed(text).into()))
    };
    devices_of_filesystems(is_wanted).into_iter().map(named).collect()
}

/// The block devices of all file systems whose superblock `is_wanted`.
fn devices_of_filesystems(is_wanted: impl Fn(&Superblock) -> bool) -> BTreeMap<Uuid, Devices> {
    let mut filesystems: BTreeMap<Uuid, Devices> = BTreeMap::new();
    for path in block_devices() {
        if let Some(superblock) = superblock_of(&path, Place::Found)
            && is_wanted(&superblock)
        {
            filesystems.entry(superblock.fsid()).or_default().add(&superblock, path);
        }
    }
    filesystems
}

/// The uuid of the file system that the image file or block device at `path` belongs to, if its
/// superblock can be read and is sound.
pub fn uuid_of(path: impl AsRef<Path>) -> Option<Uuid> {
    Some(superblock_of(path.as_ref(), Place::Found)?.fsid())
}

/// Paths by the number of the device.
#[derive(Default)]
struct Devices(BTreeMap<u64, Vec<PathBuf>>);

impl Devices {
    fn add(&mut self, superblock: &Superblock, path: PathBuf) {
        let paths = self.0.entry(superblock.dev_item.devid.get()).or_default();
        if !paths.contains(&path) {
            paths.push(path);
        }
    }

    /// One path for each device.
    fn paths(self) -> std::result::Result<Vec<PathBuf>, String> {
        let one = |(devid, mut paths): (u64, Vec<PathBuf>)| match paths.as_slice() {
            [_] => Ok(paths.remove(0)),
            _ => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                Err(format!("{} are all device {devid} of it: name one", paths.join(", ")))
            }
        };
        self.0.into_iter().map(one).collect()
    }
}

/// Files in the directories of image files, and all block devices if one of `paths` is one; without
/// `paths` themselves.
fn beside(paths: &[impl AsRef<Path>]) -> BTreeSet<PathBuf> {
    let given: Vec<_> = paths.iter().map(|path| FileId::of(path.as_ref()).ok()).collect();
    let mut found = BTreeSet::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match path.metadata().ok().map(|it| it.file_type()) {
            Some(file_type) if file_type.is_block_device() => found.extend(block_devices()),
            Some(file_type) if file_type.is_file() => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let entries = fs::read_dir(parent.unwrap_or(Path::new(".")));
                let files = entries.into_iter().flatten().flatten().filter(|entry| {
                    // Following no link, a file is found under one name.
                    entry.file_type().is_ok_and(|file_type| file_type.is_file())
                });
                // Shown as the user wrote the other.
                found.extend(files.map(|file| path.with_file_name(file.file_name())));
            }
            _ => {}
        }
    }
    found.retain(|path| !given.contains(&FileId::of(path).ok()));
    found
}

/// The superblock at `place` of what is at `path`, if it can be read and is sound.
fn superblock_of(path: &Path, place: Place) -> Option<Box<Superblock>> {
    let device = larder_image::open(path, Access::ReadOnly, place).ok()?;
    Some(larder_volume::scan_copy(device.as_ref(), 0).ok()?.superblock)
}
