//! Properties in a mounted file system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use larder::Uuid;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

use super::bearer::{Bearer, COMPRESSION, State, TOP_LEVEL};

/// The longest name of a compression.
const MOST_VALUE_BYTES: usize = 256;

/// An open inode.
pub struct Mounted {
    file: File,
    subvolume_id: u64,
}

impl Mounted {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        let file = File::open(path).with_context(named)?;
        let subvolume_id = larder_ioctl::subvolume_id(&file).with_context(named)?;
        Ok(Self { file, subvolume_id })
    }
}

impl Bearer for Mounted {
    fn is_subvolume_root(&self) -> bool {
        // Only roots have flags of subvolumes.
        larder_ioctl::is_read_only(&self.file).is_ok()
    }

    fn is_in_top_level(&self) -> bool {
        self.subvolume_id == TOP_LEVEL
    }

    fn has_data(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_dir())
    }

    fn subvolume(&self) -> anyhow::Result<State> {
        ensure!(self.is_subvolume_root(), "no subvolume");
        let is_received = !larder_ioctl::subvolume_info(&self.file)?.received_uuid.is_nil();
        Ok(State { is_read_only: larder_ioctl::is_read_only(&self.file)?, is_received })
    }

    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()> {
        Ok(larder_ioctl::set_read_only(&self.file, is_read_only)?)
    }

    fn forget_received(&self) -> anyhow::Result<()> {
        Ok(larder_ioctl::set_received(&self.file, Uuid::nil(), 0)?)
    }

    fn label(&self) -> anyhow::Result<OsString> {
        Ok(OsString::from_vec(larder_ioctl::label(&self.file)?))
    }

    fn set_label(&self, label: &OsStr) -> anyhow::Result<()> {
        Ok(larder_ioctl::set_label(&self.file, label.as_bytes())?)
    }

    fn compression(&self) -> anyhow::Result<Option<OsString>> {
        let mut value = [0; MOST_VALUE_BYTES];
        match fgetxattr(&self.file, COMPRESSION, &mut value) {
            Ok(len) => Ok(Some(OsString::from_vec(value[..len].to_vec()))),
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_compression(&self, compression: &OsStr) -> anyhow::Result<()> {
        let flags = XattrFlags::empty();
        match fsetxattr(&self.file, COMPRESSION, compression.as_bytes(), flags) {
            Err(Errno::INVAL) => bail!("invalid value for property: {}", compression.display()),
            set => Ok(set?),
        }
    }
}
