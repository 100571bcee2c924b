//! What is in a mounted file system, of larder or of the kernel.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use larder::Uuid;
use larder_ioctl::abi;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::summable::{Summable, Used};

/// The number of the inode that a name of a subvolume has in a snapshot
/// (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`), which answers no requests.
const EMPTY_SUBVOLUME: u64 = 2;

/// Something in a mounted file system.
pub struct Mounted {
    path: PathBuf,
    metadata: Metadata,
    filesystem: Uuid,
}

impl Mounted {
    /// The argument `path`, behind links.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        let metadata = path.metadata().with_context(named)?;
        let file = File::open(path).with_context(named)?;
        let info = larder_ioctl::filesystem_info(&file).with_context(named)?;
        Ok(Self { path: path.into(), metadata, filesystem: info.uuid })
    }

    /// Whether `path` is in the same file system. Subvolumes may be devices of their own.
    fn has(&self, path: &Path, metadata: &Metadata) -> bool {
        if metadata.dev() == self.metadata.dev() {
            return true;
        }
        metadata.is_dir()
            && match File::open(path).and_then(larder_ioctl::filesystem_info) {
                Ok(info) => info.uuid == self.filesystem,
                // In a snapshot, an empty directory has the name of a subvolume in the original.
                Err(_) => metadata.ino() == EMPTY_SUBVOLUME,
            }
    }
}

impl Summable for Mounted {
    fn id(&self) -> (u64, u64) {
        (self.metadata.dev(), self.metadata.ino())
    }

    fn is_directory(&self) -> bool {
        self.metadata.is_dir()
    }

    fn is_file(&self) -> bool {
        self.metadata.is_file()
    }

    fn has_several_names(&self) -> bool {
        self.metadata.nlink() > 1
    }

    fn children(&self) -> anyhow::Result<Vec<(OsString, anyhow::Result<Self>)>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let path = self.path.join(&name);
            let child = match path.symlink_metadata() {
                Ok(metadata) if !self.has(&path, &metadata) => continue,
                Ok(metadata) => Ok(Self { path, metadata, filesystem: self.filesystem }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(anyhow!(error).context(path.display().to_string())),
            };
            children.push((name, child));
        }
        Ok(children)
    }

    fn extents(&self, add: &mut dyn FnMut(Used) -> larder::Result<()>) -> anyhow::Result<()> {
        /// What takes no space of its own, or none yet.
        const LEFT_OUT: u32 = abi::EXTENT_UNKNOWN | abi::EXTENT_DELALLOC | abi::EXTENT_INLINE;
        let flags = (OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::NONBLOCK).bits();
        let open = |flags: u32| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags.cast_signed());
            options.open(&self.path)
        };
        let file = match open(flags) {
            // Only the owner may keep the time of last access.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                open(flags & !OFlags::NOATIME.bits())
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                File::open(&self.path)
            }
            opened => opened,
        }?;
        let is_same = file.metadata()?.ino() == self.metadata.ino();
        ensure!(is_same, "another file has taken its place");
        for extent in larder_ioctl::mapped_extents(file.as_fd()) {
            let extent = extent?;
            if extent.flags & LEFT_OUT == 0 {
                let is_shared = extent.flags & abi::EXTENT_SHARED != 0;
                add(Used { address: extent.address, len_bytes: extent.len_bytes, is_shared })?;
            }
        }
        Ok(())
    }
}
