//! Files with holes: their data ranges, and copies that stay sparse.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use rustix::fs::SeekFrom as Region;
use rustix::io::Errno;

/// Copies the file `from` to the new or emptied file `to`, data only: holes stay holes.
pub fn sparse_copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    target.set_len(source.metadata()?.len())?;
    for range in data_ranges(&source)? {
        source.seek(SeekFrom::Start(range.start))?;
        target.seek(SeekFrom::Start(range.start))?;
        copy_bytes(&mut source, &mut target, range.end - range.start)?;
    }
    Ok(())
}

/// The data ranges of `file`: sorted, in bytes, with holes between them.
pub(crate) fn data_ranges(file: &File) -> io::Result<Vec<Range<u64>>> {
    let len_bytes = file.metadata()?.len();
    let mut ranges = Vec::new();
    let mut offset = 0;
    while offset < len_bytes {
        let start = match rustix::fs::seek(file, Region::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        offset = rustix::fs::seek(file, Region::Hole(start))?;
        ranges.push(start..offset);
    }
    Ok(ranges)
}

fn copy_bytes(source: &mut File, target: &mut File, len_bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut left = len_bytes;
    while left > 0 {
        let piece = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        source.read_exact(&mut buffer[..piece])?;
        target.write_all(&buffer[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}
