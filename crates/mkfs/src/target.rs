//! Files and block devices to make a file system on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, DeviceError, FileDevice};
use larder_image::{Opened, Place};
use larder_platform::FileId;

use crate::{MkfsError, probe};

/// Undoes changes of files if mkfs fails: removes created files, and gives lengthened ones their
/// old length back.
#[derive(Default)]
pub(crate) struct Undo {
    made: Vec<PathBuf>,
    lengthened: Vec<(Arc<FileDevice>, u64)>,
}

impl Undo {
    /// Keeps all changes: the file system is complete.
    pub(crate) fn forget(mut self) {
        self.made.clear();
        self.lengthened.clear();
    }

    /// Opens a device, or creates a file if there is a length for it, and checks that it may be
    /// overwritten. Does not change existing content.
    pub(crate) fn open(
        &mut self,
        path: &Path,
        place: Place,
        new_len_bytes: Option<u64>,
        force: bool,
    ) -> Result<Opened, MkfsError> {
        if place == Place::WHOLE
            && !larder_objects::is_url(path.as_os_str())
            && path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            if new_len_bytes.is_none() {
                return Err(MkfsError::NoLength { device: path.display().to_string() });
            }
            let image = Opened::create(path)?;
            self.made.push(path.to_owned());
            return Ok(image);
        }
        let image = Opened::open(path, Access::ReadWrite, place)?;
        if !force {
            refuse_content_of(&image)?;
        }
        Ok(image)
    }

    /// Makes a file at least this long.
    pub(crate) fn lengthen(&mut self, image: &Opened, len_bytes: u64) -> Result<(), MkfsError> {
        let Some(device) = &image.file else { return Ok(()) };
        let before = device.len_bytes();
        if before < len_bytes {
            self.lengthened.push((Arc::clone(device), before));
            device.set_len(len_bytes)?;
        }
        Ok(())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // The caller hears of the first error.
        for (device, len_bytes) in &self.lengthened {
            let _ = device.set_len(*len_bytes);
        }
        for path in &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// What a path leads to, or the path itself if that does not exist yet.
fn identity(path: &Path) -> Result<FileId, PathBuf> {
    let absolute = |_| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    FileId::of(path).map_err(absolute)
}

/// Fails if two of the paths lead to the same file or device.
pub(crate) fn refuse_twice(targets: &[PathBuf]) -> Result<(), MkfsError> {
    let identities: Vec<_> = targets.iter().map(|path| identity(path)).collect();
    for (index, identity) in identities.iter().enumerate() {
        if let Some(earlier) = identities[..index].iter().position(|it| it == identity) {
            let (first, second) = (targets[earlier].display(), targets[index].display());
            return Err(MkfsError::InvalidOptions(if targets[earlier] == targets[index] {
                format!("{first}: given twice")
            } else {
                format!("{first} and {second}: the same device")
            }));
        }
    }
    Ok(())
}

/// Fails if the device holds content that this crate or the system knows.
fn refuse_content_of(image: &Opened) -> Result<(), MkfsError> {
    let device = image.device.name();
    let failed = |source| DeviceError::Open { device: device.to_owned(), source };
    match image.signature().map_err(failed)? {
        Some(signature) => {
            let content = probe::described(image.device.as_ref(), &signature)?;
            Err(MkfsError::Occupied { device: device.to_owned(), content })
        }
        None => refuse_content(image.device.as_ref()),
    }
}

/// Fails if the device holds content that this crate knows.
pub(crate) fn refuse_content(device: &dyn Device) -> Result<(), MkfsError> {
    match probe::content(device)? {
        Some(content) => {
            let content = content.to_owned();
            Err(MkfsError::Occupied { device: device.name().to_owned(), content })
        }
        None => Ok(()),
    }
}

/// The future length of a file, or the length of a device.
pub(crate) fn new_len(image: &Opened, byte_count: Option<u64>, least_bytes: u64) -> u64 {
    let len_bytes = image.device.len_bytes();
    if image.file.is_none() {
        return len_bytes;
    }
    byte_count.unwrap_or_else(|| len_bytes.max(least_bytes))
}

/// Cuts a file to this length.
pub(crate) fn shorten(device: &FileDevice, len_bytes: u64) -> Result<(), MkfsError> {
    if len_bytes < device.len_bytes() {
        device.set_len(len_bytes)?;
    }
    Ok(())
}
