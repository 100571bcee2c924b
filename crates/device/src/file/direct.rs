//! Reads around the page cache.

use std::fs::File;
use std::io;

use larder_platform::FileExt;

/// Offsets, lengths and addresses of direct reads are multiples of this: at least the logical
/// sector of any disk.
const ALIGNMENT: usize = 4096;

/// The largest read through a buffer of our own.
const BOUNCE_BYTES: usize = 1 << 20;

/// Fills `buf` from `offset` of a file opened with `O_DIRECT`.
pub(super) fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let aligned = |value: usize| value.is_multiple_of(ALIGNMENT);
    if aligned(buf.as_ptr().addr()) && aligned(buf.len()) && aligned(offset as usize) {
        file.read_exact_at(buf, offset)
    } else {
        read_through_bounce(file, buf, offset)
    }
}

fn read_through_bounce(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    let wanted = buf.len().saturating_add(2 * ALIGNMENT);
    let mut storage = vec![0; wanted.min(BOUNCE_BYTES) + ALIGNMENT];
    let bounce = aligned_part(&mut storage);
    while !buf.is_empty() {
        let skip = (offset % ALIGNMENT as u64) as usize;
        let len = (skip + buf.len()).next_multiple_of(ALIGNMENT).min(bounce.len());
        let read = file.read_at(&mut bounce[..len], offset - skip as u64)?;
        // The last block of a file may be short; less than the wanted part of it means the end.
        let useful = read.saturating_sub(skip).min(buf.len());
        if useful == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (head, tail) = buf.split_at_mut(useful);
        head.copy_from_slice(&bounce[skip..skip + useful]);
        buf = tail;
        offset += useful as u64;
    }
    Ok(())
}

/// The largest part of `storage` that starts and ends at multiples of the alignment.
fn aligned_part(storage: &mut [u8]) -> &mut [u8] {
    let start = storage.as_ptr().addr().next_multiple_of(ALIGNMENT) - storage.as_ptr().addr();
    let len = (storage.len() - start) / ALIGNMENT * ALIGNMENT;
    &mut storage[start..start + len]
}
