//! Subvolumes in subvolumes, snapshots of snapshots, and one that was deleted.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Content;
use super::write::file;
use crate::command::run;
use crate::guard::Scratch;
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

    // Each snapshot is of another state, and has the one before.
    snapshot(&first, &folder.join("read-only"), true)?;
    change(&first, random, 1)?;
    snapshot(&first, &folder.join("writable"), false)?;
    change(&folder.join("writable"), random, 2)?;
    snapshot(&folder.join("writable"), &folder.join("of-writable"), true)?;
    snapshot(&folder.join("of-writable"), &folder.join("of-read-only"), false)?;
    change(&folder.join("of-read-only"), random, 3)?;
    change(&first, random, 4)?;
    // A snapshot below its own source.
    snapshot(&first, &first.join("of-myself"), true)?;

    let temporary = folder.join("temporary");
    snapshot(&folder.join("writable"), &temporary, false)?;
    change(&temporary, random, 5)?;
    delete(&temporary)?;
    received(folder)?;
    everything(folder, random)
}

/// A snapshot of the top level, the only tree of several levels, which then changes in many places.
fn everything(folder: &Path, random: &mut Random) -> io::Result<()> {
    let root = folder.parent().expect("the chapter is a folder in the root");
    snapshot(root, &folder.join("of-everything"), true)?;
    for number in (0..300).step_by(20) {
        let entry = root.join(format!("many/entries/entry-{number}"));
        std::fs::write(entry, random.compressible(3 * number))?;
    }
    std::fs::remove_file(root.join("data/noise-300007"))?;
    std::fs::rename(root.join("data/text-4097"), root.join("data/text-renamed"))?;
    let changed = OpenOptions::new().write(true).open(root.join("data/text-300007"))?;
    changed.write_all_at(&random.incompressible(10_000), 150_000)
}

/// A received subvolume, which has another entry in the uuid tree.
fn received(folder: &Path) -> io::Result<()> {
    let stream = Scratch::new();
    let stream = stream.path().join("stream");
    let target = folder.join("received");
    std::fs::create_dir(&target)?;
    let source = folder.join("read-only");
    btrfs(&["send".as_ref(), "-f".as_ref(), stream.as_os_str(), source.as_os_str()])?;
    btrfs(&["receive".as_ref(), "-f".as_ref(), stream.as_os_str(), target.as_os_str()])
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
    btrfs(&[&[OsStr::new("subvolume")], arguments].concat())
}

fn btrfs(arguments: &[&OsStr]) -> io::Result<()> {
    run("btrfs", arguments).map(drop).map_err(io::Error::other)
}
