//! Shared extents: reflinks within and across files, whole and in part, and deduplicated ranges.
//! Also files without checksums, which share only among themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_ficlone, ioctl_setflags};

use super::Content;
use super::write::{create, file};
use crate::ioctl::{clone_range, dedupe_range};
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, content: &Content) -> io::Result<()> {
    let original = file(&folder.join("original"), &random.compressible(1 << 20))?;
    original.sync_data()?;
    for number in 0..3 {
        let copy = create(&folder.join(format!("copy-{number}")))?;
        ioctl_ficlone(&copy, &original)?;
        // Each copy differs at another offset.
        copy.write_all_at(&random.incompressible(5000), 200_000 * number)?;
    }
    parts(folder, random, &original)?;
    inline(folder, random)?;
    deduplicated(folder, random)?;
    if content.without_checksums {
        without_checksums(folder, random)?;
    }
    Ok(())
}

fn parts(folder: &Path, random: &mut Random, original: &File) -> io::Result<()> {
    // A file's own range twice more, then ranges of another file out of order.
    let target = file(&folder.join("repeated"), &random.compressible(1 << 17))?;
    target.sync_data()?;
    clone_range(&target, 1 << 18, &target, 4096, 1 << 16)?;
    clone_range(&target, 1 << 19, &target, 0, 1 << 17)?;
    for (number, source_offset) in (0..).zip([1 << 19, 1 << 16, 0, 3 << 17]) {
        clone_range(&target, (1 << 20) + (number << 16), original, source_offset, 1 << 14)?;
    }
    Ok(())
}

/// Reflinking an inline extent copies it.
fn inline(folder: &Path, random: &mut Random) -> io::Result<()> {
    let original = file(&folder.join("inline"), &random.compressible(500))?;
    original.sync_data()?;
    ioctl_ficlone(create(&folder.join("inline-copy"))?, &original)?;
    Ok(())
}

fn deduplicated(folder: &Path, random: &mut Random) -> io::Result<()> {
    let same = random.compressible(1 << 18);
    let first = file(&folder.join("same-1"), &same)?;
    let second = file(&folder.join("same-2"), &same)?;
    first.sync_data()?;
    second.sync_data()?;
    let shared = dedupe_range(&second, 1 << 16, &first, 1 << 16, 1 << 17)?;
    assert_eq!(shared, 1 << 17, "the kernel deduplicates equal ranges");
    Ok(())
}

/// Files marked while they are empty are overwritten in place and have no checksums (`chattr +C`).
fn without_checksums(folder: &Path, random: &mut Random) -> io::Result<()> {
    let original = create(&folder.join("nodatacow"))?;
    ioctl_setflags(&original, IFlags::NOCOW)?;
    original.write_all_at(&random.compressible(300_000), 0)?;
    original.sync_data()?;
    original.write_all_at(&random.incompressible(10_000), 50_000)?;
    let copy = create(&folder.join("nodatacow-copy"))?;
    ioctl_setflags(&copy, IFlags::NOCOW)?;
    ioctl_ficlone(&copy, &original)?;
    copy.write_all_at(&random.incompressible(4096), 8192)?;
    Ok(())
}
