//! Unfinished work at a power cut: deleted files that are still open, a deleted subvolume, and
//! changes that only the log tree has.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::subvolumes::delete;
use super::write::{create, file};
use crate::guard::KernelMount;
use crate::random::Random;

/// Keeps deleted files open, which a crash leaves as orphans. Copy the devices, then drop it.
#[derive(Debug)]
pub(crate) struct PowerCut {
    _orphans: Vec<File>,
}

impl PowerCut {
    /// Changes the filled and synced file system at `mount`. Until its devices are copied, nothing
    /// may commit, or the log tree would be gone.
    #[track_caller]
    pub(crate) fn prepare(mount: &KernelMount) -> Self {
        let folder = mount.path().join("power-cut");
        let commit = || mount.sync();
        let mut random = Random::new(0x0FF);
        prepare(&folder, mount.path(), &mut random, &commit)
            .unwrap_or_else(|error| panic!("preparing the power cut: {error}"))
    }
}

fn prepare(
    folder: &Path,
    root: &Path,
    random: &mut Random,
    commit: &dyn Fn(),
) -> io::Result<PowerCut> {
    std::fs::create_dir(folder)?;
    for name in ["changed", "linked", "removed", "cut", "forgotten"] {
        file(&folder.join(name), &random.compressible(50_000))?;
    }
    let orphans = orphans(folder, random)?;
    delete(&root.join("subvolumes/of-read-only"))?;
    commit();
    only_in_the_log(folder, random)?;
    Ok(PowerCut { _orphans: orphans })
}

fn orphans(folder: &Path, random: &mut Random) -> io::Result<Vec<File>> {
    (0..20)
        .map(|number| {
            let path = folder.join(format!("orphan-{number}"));
            let open = file(&path, &random.compressible(1000 * number))?;
            std::fs::remove_file(&path)?;
            Ok(open)
        })
        .collect()
}

/// Each change is followed by an fsync of its file or folder, except for the last, which is lost.
fn only_in_the_log(folder: &Path, random: &mut Random) -> io::Result<()> {
    let new = file(&folder.join("new"), &random.compressible(100_000))?;
    new.sync_all()?;

    let changed = OpenOptions::new().write(true).open(folder.join("changed"))?;
    changed.write_all_at(&random.incompressible(10_000), 20_000)?;
    changed.sync_all()?;

    let cut = OpenOptions::new().write(true).open(folder.join("cut"))?;
    cut.set_len(12_345)?;
    cut.sync_all()?;

    std::fs::hard_link(folder.join("linked"), folder.join("linked-again"))?;
    File::open(folder.join("linked"))?.sync_all()?;

    std::fs::remove_file(folder.join("removed"))?;
    create(&folder.join("empty-and-new"))?;
    File::open(folder)?.sync_all()?;

    let forgotten = OpenOptions::new().write(true).open(folder.join("forgotten"))?;
    forgotten.write_all_at(b"never synced", 0)
}
