//! Further mounts of an image that is mounted already: its server makes the kernel create one, and
//! this process attaches it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use larder::Filesystem;
use larder_fuse::usage::{MountTable, Process};
use larder_fuse::{FurtherMount, Tree};
use larder_ioctl::channel::Channel;

use super::options::Options;
use crate::ending::{Wait, mount_of, server_of};

/// How long a server may take to answer before it is asked again. A stopped one never does.
const ANSWER: Duration = Duration::from_secs(1);
/// How long it is asked while a mount shows that it neither begins nor ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of an attempt to join a server.
enum Attempt {
    Joined,
    /// It does not listen yet, or not any more: it begins or ends.
    NotHeard,
    /// It is another user's process that could not open the image so itself: whatever it is, it
    /// gets nothing.
    NotTrusted,
}

/// Shows at `mountpoint` the file system of a server that has one of `devices` open, with the
/// options in `lists`. Returns whether there is such a server. Waits for one that begins or ends.
pub fn join(devices: &[PathBuf], mountpoint: &Path, lists: &[String]) -> anyhow::Result<bool> {
    for device in devices {
        let mut wait = Wait::new(device);
        while let Some(server) = server_of(device) {
            // As for the kernel, no mount lies on itself.
            let this = Process { pid: std::process::id() };
            let table = MountTable::of_this_process()?;
            if table.ours_at(mountpoint).is_some_and(|mount| server.serves(mount, this)) {
                bail!("{}: mounted at {} already", device.display(), mountpoint.display());
            }
            match attempt(device, server, mountpoint, lists.join(",")) {
                Ok(Attempt::Joined) => return Ok(true),
                Ok(Attempt::NotTrusted) => break,
                Ok(Attempt::NotHeard) => ensure!(
                    wait.elapsed() < PATIENCE || mount_of(server).is_none(),
                    "{}: {} serves it, and does not answer here: show it in another place with 'mount --bind'",
                    device.display(),
                    server
                ),
                // A server whose mount has ended may answer until it notices that.
                Err(_) if mount_of(server).is_none() && wait.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.context(place(device, server))),
            }
            wait.goes_on(server);
        }
    }
    Ok(false)
}

/// The server that has `device` mounted, and where.
fn place(device: &Path, server: Process) -> String {
    let device = device.display();
    match mount_of(server) {
        Some((_, mount)) => {
            format!("{device}: mounted at {} already, by {server}", mount.path.display())
        }
        None => format!("{device}: {server} serves it already"),
    }
}

fn attempt(
    device: &Path,
    server: Process,
    mountpoint: &Path,
    words: String,
) -> anyhow::Result<Attempt> {
    // The server serves whoever could read or write the image without it.
    let image = File::options().read(true).write(true).open(device);
    let image = image.or_else(|_| File::open(device))?;
    let channel = match Channel::of_process(server.pid, image.as_fd(), ANSWER) {
        Err(error) if is_unheard(&error) => None,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Attempt::NotTrusted);
        }
        found => found?,
    };
    let Some(mut channel) = channel else { return Ok(Attempt::NotHeard) };
    let (reply, tree) = match channel.mount(words) {
        Err(error) if is_unheard(&error) => return Ok(Attempt::NotHeard),
        answer => answer?,
    };
    let tree = Tree::received(tree).part(reply.subvolume, &reply.path);
    tree.and_then(|tree| tree.attach(mountpoint))
        .with_context(|| mountpoint.display().to_string())?;
    if !reply.ignored.is_empty() {
        tracing::warn!(
            "{}: not obeyed, since it is mounted with other options already: {}; all its mounts have those, \
             and '-o remount' changes them",
            mountpoint.display(),
            reply.ignored
        );
    }
    Ok(Attempt::Joined)
}

/// Whether this is no answer, or that of a server that has no mount any more.
fn is_unheard(error: &io::Error) -> bool {
    use io::ErrorKind::{NotConnected, TimedOut, UnexpectedEof, WouldBlock};
    matches!(error.kind(), UnexpectedEof | NotConnected | TimedOut | WouldBlock)
}

/// For the server: reads the options `words`, for a file system on `devices` that is mounted with the
/// lists `said`.
pub fn read(
    filesystem: &Filesystem,
    devices: &[PathBuf],
    said: &[String],
    words: &str,
) -> anyhow::Result<FurtherMount> {
    let wanted = Options::parse([words])?;
    let before = Options::parse(said.iter().map(String::as_str))?;
    for device in devices {
        ensure!(
            larder_image::is_same(device, before.place, wanted.place)?,
            "{}: another part of it is mounted, and this program has only one open for writing: \
             unmount that first",
            device.display()
        );
    }
    let mut ignored = Vec::new();
    for word in words.split(',') {
        // An option that can only be set first is in the way here, too.
        let with = Options::parse(said.iter().map(String::as_str).chain([word]));
        if let Ok(with) = &with
            && !with.shows_likewise(&before)
        {
            bail!("'{word}': it is mounted otherwise, and all its mounts share that");
        }
        if !with.is_ok_and(|with| with.serves_likewise(&before)) {
            ignored.push(word.to_owned());
        }
    }
    let subvolume = wanted.shown(filesystem).map_err(|error| match &wanted.subvolume {
        Some(named) => anyhow!(error).context(format!("{named}")),
        None => error.into(),
    })?;
    Ok(FurtherMount { subvolume, options: wanted.mount, server: before.server, ignored })
}
