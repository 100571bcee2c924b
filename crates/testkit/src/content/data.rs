//! Files of many sizes: inline, regular, compressible or not, in one extent or in several.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Content;
use super::write::{create, file};
use crate::random::Random;

/// Lengths near the limit of inline data, near a sector, and near the largest compressed extent.
const LENS_BYTES: [usize; 16] = [
    0,
    1,
    100,
    2047,
    2048,
    2049,
    3000,
    4095,
    4096,
    4097,
    10_000,
    131_071,
    131_072,
    131_073,
    300_007,
    1 << 20,
];

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    for len_bytes in LENS_BYTES {
        file(&folder.join(format!("text-{len_bytes}")), &random.compressible(len_bytes))?;
        file(&folder.join(format!("noise-{len_bytes}")), &random.incompressible(len_bytes))?;
    }
    file(&folder.join("zeros"), &vec![0; 1 << 20])?;
    half_compressible(folder, random)?;
    many_commits(folder, random)?;
    overwritten(folder, random)?;
    resized(folder, random)
}

/// Compression fails for some pieces and not for others.
fn half_compressible(folder: &Path, random: &mut Random) -> io::Result<()> {
    let mut bytes = Vec::new();
    for _ in 0..4 {
        bytes.extend(random.compressible(200_000));
        bytes.extend(random.incompressible(150_000));
    }
    file(&folder.join("half-compressible"), &bytes).map(drop)
}

/// Each piece is written out before the next, so that extents cannot merge.
fn many_commits(folder: &Path, random: &mut Random) -> io::Result<()> {
    let target = create(&folder.join("appended"))?;
    let mut offset = 0;
    for round in 0..6 {
        let piece = random.compressible(20_000 + 777 * round);
        target.write_all_at(&piece, offset)?;
        target.sync_data()?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Extents of which only the start, the middle or the end is still in use.
fn overwritten(folder: &Path, random: &mut Random) -> io::Result<()> {
    let target = file(&folder.join("overwritten"), &random.compressible(500_000))?;
    target.sync_data()?;
    for (offset, len_bytes) in [(0, 4096), (100_000, 1), (123_456, 50_000), (495_000, 20_000)] {
        target.write_all_at(&random.incompressible(len_bytes), offset)?;
        target.sync_data()?;
    }
    Ok(())
}

/// Files that were cut or grown after they were written out.
fn resized(folder: &Path, random: &mut Random) -> io::Result<()> {
    for (name, len_bytes, new_len_bytes) in [
        ("cut", 1_000_000, 300_001),
        ("cut-to-inline", 100_000, 50),
        ("cut-to-nothing", 100_000, 0),
        ("grown", 100_000, 200_005),
        ("grown-from-inline", 100, 10_000),
    ] {
        let target = file(&folder.join(name), &random.compressible(len_bytes))?;
        target.sync_data()?;
        target.set_len(new_len_bytes)?;
    }
    Ok(())
}
