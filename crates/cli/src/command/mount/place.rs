//! The directory to mount at.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder_fuse::usage::MountTable;
use rustix::fs::statfs;
use rustix::io::Errno;

/// The directory that `mountpoint` leads to. If mounts there lost their server, they end: nothing
/// else can be done with them.
pub fn place(mountpoint: &Path) -> anyhow::Result<PathBuf> {
    let named = || mountpoint.display().to_string();
    let place = mountpoint.canonicalize().with_context(named)?;
    loop {
        let table = MountTable::of_this_process()?;
        let mount = table.at(&place);
        // The kernel may answer stat(2) from its cache. statfs(2) always asks the server.
        let asked = if mount.is_some_and(|mount| mount.is_ours) {
            statfs(&place).map(drop)
        } else {
            fs::metadata(&place)
                .map(drop)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        match (asked, mount) {
            (Ok(()), _) => break,
            (Err(Errno::NOTCONN | Errno::CONNABORTED), Some(mount)) if mount.is_ours => {
                larder_fuse::unmount(&place, true).with_context(|| {
                    let (shown, source) = (place.display(), mount.source.display());
                    format!("{shown}: its server, which had mounted {source}, is gone; it cannot be unmounted")
                })?;
                let (shown, source) = (place.display(), mount.source.display());
                tracing::warn!("{shown}: the server that had mounted {source} is gone; unmounted");
            }
            (Err(Errno::NOTCONN | Errno::CONNABORTED), Some(_)) => bail!(
                "{}: another FUSE server that is gone has it mounted; 'umount {}' ends that",
                named(),
                place.display()
            ),
            (Err(errno), _) => return Err(errno).with_context(named),
        }
    }
    ensure!(place.is_dir(), "{}: not a directory", place.display());
    Ok(place)
}
