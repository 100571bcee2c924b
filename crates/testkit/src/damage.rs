//! Wounds for image files, which must be unmounted and detached.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::sparse_file::data_ranges;

/// The places of superblock copies on a device, in bytes; those beyond its end do not exist.
pub const SUPERBLOCK_OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];

const SUPERBLOCK_BYTES: usize = 4096;

/// Inverts every byte of `range`. A second call restores them.
pub fn invert(file: &Path, range: Range<u64>) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.write_all_at(&bytes, range.start)
}

/// Overwrites the bytes at `offset`.
pub fn overwrite(file: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all_at(bytes, offset)
}

/// Zeros the whole device, as if it had been replaced by a new one.
pub fn wipe(file: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(file)?;
    let len_bytes = file.metadata()?.len();
    file.set_len(0)?;
    file.set_len(len_bytes)
}

/// Inverts all written data beyond the first MiB, except the superblock copies: the device still
/// belongs to its file system, and all data on it is wrong.
pub fn scramble(file: &Path) -> io::Result<()> {
    const RESERVED_BYTES: u64 = 1 << 20;
    const PIECE_BYTES: u64 = 1 << 20;
    let copy = SUPERBLOCK_OFFSETS[1]..SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES as u64;
    for range in data_ranges(&File::open(file)?)? {
        let mut offset = range.start.max(RESERVED_BYTES);
        while offset < range.end {
            if offset == copy.start {
                offset = copy.end;
                continue;
            }
            let mut end = range.end.min(offset + PIECE_BYTES);
            if offset < copy.start {
                end = end.min(copy.start);
            }
            invert(file, offset..end)?;
            offset = end;
        }
    }
    Ok(())
}

/// Zeros copy number `copy` of the superblock, 0 being the first.
pub fn zero_superblock(file: &Path, copy: usize) -> io::Result<()> {
    overwrite(file, SUPERBLOCK_OFFSETS[copy], &[0; SUPERBLOCK_BYTES])
}
