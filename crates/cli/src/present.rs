//! The file systems that are mounted on this machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use larder::{MountedFilesystem, Overview, Uuid, uuid_of};
use larder_device::{InUse, in_use};
use larder_fuse::usage::MountTable;

/// How long a mount may take to say which file system it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// A mounted file system.
pub struct Mounted {
    pub uuid: Uuid,
    pub filesystem: MountedFilesystem,
}

/// All that are mounted, by larder or by the kernel, each once. What this user may not open is left
/// out.
pub fn mounted() -> anyhow::Result<Vec<Mounted>> {
    let table = MountTable::of_this_process().context("the table of mounts")?;
    let (mut devices, mut uuids) = (BTreeSet::new(), BTreeSet::new());
    let each = table.of_btrfs().filter(|mount| devices.insert(mount.device));
    let opened = each.filter_map(|mount| open_soon(&mount.path));
    Ok(opened.filter(|mounted| uuids.insert(mounted.uuid)).collect())
}

/// Opens the file system that is mounted at `path`. One whose server does not answer is left out,
/// with a warning.
fn open_soon(path: &Path) -> Option<Mounted> {
    let open = |path: &Path| {
        let filesystem = MountedFilesystem::open(path).ok()?;
        Some(Mounted { uuid: filesystem.uuid().ok()?, filesystem })
    };
    let (answer, opened) = channel();
    // A thread, which such a server blocks as long as this process exists.
    let opening = path.to_owned();
    thread::spawn(move || answer.send(open(&opening)));
    opened.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        eprintln!("WARNING: {}: does not answer, and is left out", path.display());
        None
    })
}

/// The mount of the file system on the image file or device at `path`, if there is one that this
/// user may ask for everything. It knows changes that no commit has written to the devices yet.
pub fn mount_of(path: &Path) -> Option<MountedFilesystem> {
    let usage = in_use(path).ok()?.filter(InUse::is_of_whole)?;
    let Mounted { uuid, filesystem } = open_soon(usage.mounted_at()?)?;
    let is_it = uuid_of(path)? == uuid;
    // Searching the trees takes the most rights.
    (is_it && filesystem.default_subvolume_id().is_ok()).then_some(filesystem)
}
