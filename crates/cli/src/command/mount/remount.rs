//! `larder mount -o remount`: changing the options of a mount.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use larder_fuse::usage::{MountTable, processes};
use larder_ioctl::channel::{Channel, Request};
use rustix::process::geteuid;

use crate::outcome::Outcome;

/// Adds the options in `lists` to those of the mount at `mountpoint`.
///
/// `ro` and `rw` change the file system, wherever it is mounted; another mount for reading stays
/// one. The kernel writes nothing while its superblock is read-only: it becomes read-only before
/// the server closes the file system for writing, and writable after the server has opened it.
pub fn remount(mountpoint: &Path, lists: &[String]) -> Outcome {
    let named = || mountpoint.display().to_string();
    let mountpoint = mountpoint.canonicalize().with_context(named)?;
    let table = MountTable::of_this_process()?;
    let Some(mount) = table.ours_at(&mountpoint) else {
        bail!("{}: larder has mounted nothing here", mountpoint.display());
    };
    let words = lists.join(",");
    let said = |word| words.split(',').rfind(|said| ["ro", "rw"].contains(said)) == Some(word);
    let before = mount.has_read_only_superblock();
    let becomes = said("ro") || before && !said("rw");
    if becomes != before && !geteuid().is_root() {
        bail!(
            "{}: only root can remount for reading or for writing: unmount and mount again",
            mountpoint.display()
        );
    }
    if becomes {
        tell_kernel(&mountpoint, &words)?;
    }
    let told = tell_server(&mountpoint, words.clone()).with_context(named);
    match told {
        Ok(()) if !becomes => tell_kernel(&mountpoint, &words)?,
        Err(error) => {
            if becomes && !before {
                tell_kernel(&mountpoint, "rw")?;
            }
            return Err(error);
        }
        Ok(()) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_server(mountpoint: &Path, words: String) -> anyhow::Result<()> {
    let directory = File::open(mountpoint)?;
    let Some((mut channel, _)) = Channel::of(&directory)? else {
        bail!("the server of the mount is not larder's");
    };
    channel.call(&Request::Remount(words), &mut |_, _| Ok(()))?;
    Ok(())
}

/// Makes the kernel apply `words`, if it would for this user.
fn tell_kernel(mountpoint: &Path, words: &str) -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let table = MountTable::of_this_process()?;
    let mount = table.ours_at(mountpoint).context("nothing is mounted any more")?;
    match larder_fuse::remount(mount, words) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let writers = processes().filter_map(|process| {
                Some(format!("{process} {}", process.write_to(mount.device)?))
            });
            let writers: Vec<_> = writers.collect();
            let users = match writers.as_slice() {
                [] => "a file is open for writing, or deleted and still open".to_owned(),
                writers => writers.join(", "),
            };
            Err(anyhow!(error).context(users).context(mount.path.display().to_string()))
        }
        told => told.with_context(|| mount.path.display().to_string()),
    }
}
