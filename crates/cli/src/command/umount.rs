//! `larder umount`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use rustix::fs::{FlockOperation, flock};

use super::Outcome;

/// Unmount what larder mounted, and wait until all of it is on the devices
///
/// Programs that wait for a server that was killed get an error with -f, which only root may.
///
/// Example: larder umount ~/mnt
#[derive(Debug, Args)]
pub struct Umount {
    /// Unmount at once for all who do not use it, and for the others when they are done
    #[arg(short, long)]
    lazy: bool,
    /// End the connection to the server first: for one that is gone, or does not answer
    #[arg(short, long)]
    force: bool,
    /// Directories that something is mounted at
    #[arg(required = true, value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,
}

impl Umount {
    pub fn run(self) -> Outcome {
        for mountpoint in &self.mountpoints {
            self.unmount(mountpoint).with_context(|| mountpoint.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn unmount(&self, mountpoint: &Path) -> anyhow::Result<()> {
        // The file system itself need not answer: only the way to it is looked at.
        let name = mountpoint.file_name();
        let parent = mountpoint.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mountpoint = match name {
            Some(name) => parent.unwrap_or(Path::new(".")).canonicalize()?.join(name),
            None => mountpoint.canonicalize()?,
        };
        let Some(device) = larder_fuse::mounted_from(&mountpoint)? else {
            bail!("larder has mounted nothing here");
        };
        // Opened before, so that it is the file that the mount has open.
        let device = File::open(&device).with_context(|| device.display().to_string());
        let is_unmounted = self.force && end(&mountpoint)?;
        if !is_unmounted {
            larder_fuse::unmount(&mountpoint, self.lazy)?;
        }
        if !self.lazy {
            // Whoever serves holds the lock until the last byte is written.
            flock(&device?, FlockOperation::LockShared)?;
        }
        Ok(())
    }
}

/// Ends the connection of what is mounted; whether that has unmounted it.
fn end(mountpoint: &Path) -> io::Result<bool> {
    match larder_fuse::end(mountpoint) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        ended => ended.map(|()| true),
    }
}
