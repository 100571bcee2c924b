//! Holes and preallocated space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::Content;
use super::write::{create, file};
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    create(&folder.join("only-hole"))?.set_len(1 << 30)?;
    pieces(folder, random, "hole-first", &[(1 << 20, 5000)])?;
    pieces(folder, random, "holes-between", &[(0, 5000), (65_536, 4096), (300_000, 9999)])?;
    pieces(folder, random, "beyond-4-gib", &[(100, 100), (1 << 32, 8192), (1 << 40, 1)])?;
    let target = pieces(folder, random, "hole-last", &[(0, 10_000)])?;
    target.set_len(1 << 20)?;
    punched(folder, random)?;
    preallocated(folder, random)
}

fn pieces(
    folder: &Path,
    random: &mut Random,
    name: &str,
    pieces: &[(u64, usize)],
) -> io::Result<File> {
    let target = create(&folder.join(name))?;
    for &(offset, len_bytes) in pieces {
        target.write_all_at(&random.compressible(len_bytes), offset)?;
        target.sync_data()?;
    }
    Ok(target)
}

fn punched(folder: &Path, random: &mut Random) -> io::Result<()> {
    let target = file(&folder.join("punched"), &random.compressible(400_000))?;
    target.sync_data()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (offset, len_bytes) in [(0, 4096), (50_000, 30_000), (200_000, 131_072), (390_000, 50_000)]
    {
        fallocate(&target, punch, offset, len_bytes)?;
    }
    let target = file(&folder.join("zeroed"), &random.compressible(400_000))?;
    target.sync_data()?;
    fallocate(&target, FallocateFlags::ZERO_RANGE, 100_000, 100_000)?;
    Ok(())
}

fn preallocated(folder: &Path, random: &mut Random) -> io::Result<()> {
    let open = |name: &str| create(&folder.join(name));
    fallocate(open("prealloc")?, FallocateFlags::empty(), 0, 300_000)?;
    fallocate(open("prealloc-beyond-end")?, FallocateFlags::KEEP_SIZE, 0, 300_000)?;

    let target = open("prealloc-after-data")?;
    target.write_all_at(&random.incompressible(10_000), 0)?;
    fallocate(&target, FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;

    // Written parts split the preallocated extent.
    let target = open("prealloc-partly-written")?;
    fallocate(&target, FallocateFlags::empty(), 0, 1 << 20)?;
    for (offset, len_bytes) in [(0, 4096), (40_000, 100), (500_000, 65_536), (1_040_000, 8576)] {
        target.write_all_at(&random.incompressible(len_bytes), offset)?;
        target.sync_data()?;
    }
    Ok(())
}
