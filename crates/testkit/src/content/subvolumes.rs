//! Subvolumes in subvolumes, snapshots of snapshots, and one that was deleted.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Content;
use super::write::file;
use crate::command::run;
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    let first = folder.join("first");
    create(&first)?;
    for number in 0..40 {
        file(&first.join(format!("file-{number}")), &random.compressible(2500 * number))?;
    }
    create(&first.join("inner"))?;
    file(&first.join("inner/file"), &random.compressible(10_000))?;
    std::fs::create_dir(first.join("plain"))?;
    create(&first.join("plain/innermost"))?;
    file(&first.join("plain/innermost/file"), b"three roots deep")?;

    // Each snapshot is taken of a state of its own, and of the one before.
    snapshot(&first, &folder.join("read-only"), true)?;
    change(&first, random, 1)?;
    snapshot(&first, &folder.join("writable"), false)?;
    change(&folder.join("writable"), random, 2)?;
    snapshot(&folder.join("writable"), &folder.join("of-writable"), true)?;
    snapshot(&folder.join("of-writable"), &folder.join("of-read-only"), false)?;
    change(&folder.join("of-read-only"), random, 3)?;
    change(&first, random, 4)?;
    // A snapshot below its own origin.
    snapshot(&first, &first.join("of-myself"), true)?;

    let temporary = folder.join("temporary");
    snapshot(&folder.join("writable"), &temporary, false)?;
    change(&temporary, random, 5)?;
    delete(&temporary)
}

/// Overwrites, removes and adds files of the subvolume at `path`.
fn change(path: &Path, random: &mut Random, round: u64) -> io::Result<()> {
    for number in (round..40).step_by(7) {
        let name = path.join(format!("file-{number}"));
        if name.exists() {
            let target = OpenOptions::new().write(true).open(name)?;
            target.write_all_at(&random.incompressible(3000), 1000)?;
        }
    }
    let removed = path.join(format!("file-{}", 10 + round));
    if removed.exists() {
        std::fs::remove_file(removed)?;
    }
    file(&path.join(format!("added-{round}")), &random.compressible(7000)).map(drop)
}

fn create(path: &Path) -> io::Result<()> {
    subvolume(&["create".as_ref(), path.as_os_str()])
}

fn snapshot(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    let mut arguments = vec![OsStr::new("snapshot")];
    if read_only {
        arguments.push(OsStr::new("-r"));
    }
    arguments.extend([source.as_os_str(), target.as_os_str()]);
    subvolume(&arguments)
}

pub(super) fn delete(path: &Path) -> io::Result<()> {
    subvolume(&["delete".as_ref(), path.as_os_str()])
}

fn subvolume(arguments: &[&OsStr]) -> io::Result<()> {
    let arguments = [OsStr::new("subvolume")].into_iter().chain(arguments.iter().copied());
    run("btrfs", arguments).map(drop).map_err(io::Error::other)
}
