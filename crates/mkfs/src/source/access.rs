//! Reading the source.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The ranges of the first `size` bytes of a file that hold data, of whole sectors: sorted, neither
/// touching nor overlapping. The last may end after `size`.
pub(crate) fn data_ranges(
    file: BorrowedFd<'_>,
    size: u64,
    sector_size: u64,
) -> Result<Vec<Range<u64>>, Errno> {
    if size == 0 {
        return Ok(Vec::new());
    }
    if seek(file, SeekFrom::Hole(0))? >= size {
        return Ok(std::iter::once(0..size.next_multiple_of(sector_size)).collect());
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < size => data,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(size),
            // The file became shorter; reading reports it.
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno),
        };
        let start = data / sector_size * sector_size;
        let hole_sector = hole.next_multiple_of(sector_size);
        match ranges.last_mut() {
            Some(last) if last.end >= start => last.end = hole_sector,
            _ => ranges.push(start..hole_sector),
        }
        at = hole.max(data + 1);
    }
    Ok(ranges)
}
