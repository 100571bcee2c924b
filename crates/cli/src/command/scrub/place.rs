//! What to scrub: a mounted file system, or one on images.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use larder::{Filesystem, Overview, Profile, Uuid};
use rustix::io::Errno;

use crate::command::scrub::record::Claim;
use crate::device_errors::mounted_at;
use crate::mounted_device::mount_with;
use crate::source::Source;
use crate::target::mounted_path;

/// A file system to scrub, or a device of it.
pub struct Place {
    /// As the user named it.
    pub path: PathBuf,
    pub uuid: Uuid,
    /// The devices to scrub.
    pub devices: Vec<Listed>,
    pub kind: Kind,
}

/// A device.
pub struct Listed {
    pub id: u64,
    /// Empty if it is missing.
    pub name: String,
    pub allocated_bytes: u64,
}

pub enum Kind {
    /// Mounted, by the kernel or by larder: a directory of it.
    Mounted(File),
    /// An image that is not mounted.
    Image,
}

impl Place {
    /// The file system or device that `path` names.
    pub fn find(path: &Path, source: &Source) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        if mounted_path(path.as_os_str()).is_some() && path.is_dir() {
            return Self::mounted(path, File::open(path).with_context(named)?, None);
        }
        let canonical = path.canonicalize().with_context(named)?;
        if let Some((directory, device)) = mount_with(&canonical)? {
            return Self::mounted(path, directory, Some(device.id));
        }
        match mounted_at(path) {
            Some(directory) => Self::mounted(path, File::open(directory)?, None),
            None => Self::image(path, source),
        }
    }

    fn mounted(path: &Path, directory: File, only: Option<u64>) -> anyhow::Result<Self> {
        let info =
            larder_ioctl::filesystem_info(&directory).map_err(
                |error| match Errno::from_io_error(&error) {
                    Some(Errno::NOTTY | Errno::NOSYS) => {
                        anyhow!(
                            "{}: neither the kernel's btrfs nor a mount of larder",
                            path.display()
                        )
                    }
                    _ => anyhow::Error::from(error).context(path.display().to_string()),
                },
            )?;
        let devices = larder_ioctl::devices(&directory)?.into_iter();
        let devices = devices.filter(|device| only.is_none_or(|id| id == device.id));
        let listed = |device: larder_ioctl::DeviceInfo| Listed {
            id: device.id,
            name: OsStr::from_bytes(&device.path).display().to_string(),
            allocated_bytes: device.allocated_bytes,
        };
        Ok(Self {
            path: path.to_owned(),
            uuid: info.uuid,
            devices: devices.map(listed).collect(),
            kind: Kind::Mounted(directory),
        })
    }

    fn image(path: &Path, source: &Source) -> anyhow::Result<Self> {
        let filesystem = source.identify(path)?;
        let listed = |device: larder::DeviceInfo| Listed {
            id: device.id,
            name: device.name.unwrap_or_default(),
            allocated_bytes: device.allocated_bytes,
        };
        Ok(Self {
            path: path.to_owned(),
            uuid: filesystem.uuid(),
            devices: filesystem.devices().into_iter().map(listed).collect(),
            kind: Kind::Image,
        })
    }

    /// Opens the file system on an image: for reading only, if nothing is to be repaired or it can
    /// only be read.
    pub fn open(&self, source: &Source, read_only: bool) -> anyhow::Result<Filesystem> {
        if !read_only {
            match source.open_for_writing(&self.path) {
                Ok(filesystem) => return Ok(filesystem),
                Err(error) => {
                    let problem: Option<&larder::Error> = error.downcast_ref();
                    if problem.is_none_or(|it| it.kind() != larder::ErrorKind::ReadOnly) {
                        return Err(error);
                    }
                    eprintln!("WARNING: {error:#}; nothing is repaired");
                }
            }
        }
        source.open(&self.path)
    }

    /// Whether any of its devices is being scrubbed now.
    pub fn is_scrubbed(&self) -> anyhow::Result<bool> {
        match &self.kind {
            Kind::Image => Ok(Claim::holder(self.uuid).is_some()),
            Kind::Mounted(directory) => {
                for device in &self.devices {
                    let progress = larder_ioctl::scrub_progress(directory, device.id);
                    if progress.with_context(|| self.path.display().to_string())?.is_some() {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Bytes that extents take on all devices together.
    pub fn used_bytes(&self, source: &Source) -> anyhow::Result<u64> {
        let overview: Box<dyn Overview> = match self.kind {
            Kind::Mounted(_) => Box::new(larder::MountedFilesystem::open(self.directory()?)?),
            Kind::Image => Box::new(source.identify(&self.path)?),
        };
        let spaces = overview.space()?.into_iter();
        Ok(spaces.map(|space| space.used_bytes * space.profile.map_or(1, Profile::copies)).sum())
    }

    fn directory(&self) -> anyhow::Result<PathBuf> {
        if self.path.is_dir() {
            return Ok(self.path.clone());
        }
        let path = self.path.canonicalize()?;
        let mounted = mounted_at(&self.path).or_else(|| crate::mounted_device::mounted_with(&path));
        mounted.with_context(|| format!("{}: is not mounted any more", self.path.display()))
    }
}
