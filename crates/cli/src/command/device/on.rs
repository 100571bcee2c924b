//! The file system whose devices a command changes: an image, or one that the kernel has mounted.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use larder::{DeviceProgress, Filesystem};
use rustix::io::Errno;

use crate::progress::Progress;
use crate::source::Source;
use crate::target::Target;

/// A file system whose devices change.
pub enum Changing {
    /// One that is not mounted.
    Image(Filesystem),
    /// A directory of one that is mounted.
    Mounted(File),
}

/// A device of it.
pub struct Device {
    pub id: u64,
    /// Its path; none if it is missing.
    pub path: Option<PathBuf>,
    pub total_bytes: u64,
}

impl From<larder::DeviceInfo> for Device {
    fn from(device: larder::DeviceInfo) -> Self {
        let path = device.name.map(PathBuf::from);
        Self { id: device.id, path, total_bytes: device.total_bytes }
    }
}

impl From<larder_ioctl::DeviceInfo> for Device {
    fn from(device: larder_ioctl::DeviceInfo) -> Self {
        let path = (!device.path.is_empty()).then(|| OsStr::from_bytes(&device.path).into());
        Self { id: device.id, path, total_bytes: device.total_bytes }
    }
}

impl Changing {
    pub fn open(source: &Source, text: &OsStr) -> anyhow::Result<Self> {
        match source.mounted_directory(text)? {
            Some(path) => Ok(Self::Mounted(File::open(path)?)),
            None => Ok(Self::Image(source.open_for_writing(&Target::parse(text).image)?)),
        }
    }

    /// Its devices in the order of their ids.
    pub fn devices(&self) -> anyhow::Result<Vec<Device>> {
        Ok(match self {
            Self::Image(filesystem) => filesystem.devices().into_iter().map(Into::into).collect(),
            Self::Mounted(directory) => {
                let devices = larder_ioctl::devices(directory).map_err(of_mount)?;
                devices.into_iter().map(Into::into).collect()
            }
        })
    }

    /// The device that a user names: by its id, by its path, or as `missing`.
    pub fn device(&self, name: &OsString) -> anyhow::Result<Device> {
        let devices = self.devices()?;
        let found = if name == "missing" {
            devices.into_iter().find(|device| device.path.is_none())
        } else if let Some(id) = name.to_str().and_then(|text| text.parse::<u64>().ok()) {
            devices.into_iter().find(|device| device.id == id)
        } else {
            let path = Path::new(name).canonicalize().context(shown(name))?;
            let is_it = |device: &Device| {
                let own = device.path.as_ref().and_then(|own| own.canonicalize().ok());
                own.is_some_and(|own| own == path)
            };
            devices.into_iter().find(is_it)
        };
        found.ok_or_else(|| anyhow!("{}: no device of this file system", shown(name)))
    }
}

/// An error of a mount.
pub fn of_mount(error: io::Error) -> anyhow::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => anyhow!("this mount cannot change devices"),
        Some(Errno::FBIG) => anyhow!(
            "the device is smaller; an image file grows with this command only while it is not mounted"
        ),
        _ => error.into(),
    }
}

pub fn shown(name: &OsStr) -> String {
    name.display().to_string()
}

/// Calls `work` with what shows its progress.
pub fn with_progress<T>(work: impl FnOnce(&dyn Fn(DeviceProgress)) -> T) -> T {
    let line = std::cell::RefCell::new(Progress::of_bytes());
    work(&|now| line.borrow_mut().set_of(now.done_bytes, now.total_bytes))
}

/// Fails if content was moved that no device has right.
pub fn judge(moved: &larder::Moved) -> anyhow::Result<()> {
    let bad_bytes = moved.damaged_bytes + moved.unreadable_bytes;
    if bad_bytes > 0 {
        bail!(
            "{bad_bytes} bytes were damaged before and still are: \
             'larder check --check-data-csum' names the files"
        );
    }
    Ok(())
}
