//! Where a file has data, and where it has holes.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, Stat, seek};
use rustix::io::Errno;

/// A range of a file, of whole sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is to be read, up to the file's size.
    Data(Range<u64>),
    /// It reads as zeros.
    Hole(Range<u64>),
}

/// The ranges of the first `size` bytes of a file that hold data, of whole sectors: sorted, neither
/// touching nor overlapping. The last may end after `size`.
pub(super) fn data_ranges(
    file: BorrowedFd<'_>,
    status: &Stat,
    size: u64,
    sector_size: u64,
) -> Result<Vec<Range<u64>>, Errno> {
    if size == 0 {
        return Ok(Vec::new());
    }
    let end = size.next_multiple_of(sector_size);
    let allocated = status.st_blocks as u64 * 512;
    if allocated >= size {
        return Ok(std::iter::once(0..end).collect());
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
            // The file became shorter; reading it will tell.
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

/// The parts that file extents describe, in order and each at most `longest` bytes of data: with
/// `explicit_holes` they cover all sectors of the file, otherwise holes are left out.
pub(super) fn parts(
    ranges: Vec<Range<u64>>,
    size: u64,
    sector_size: u64,
    explicit_holes: bool,
    longest: u64,
) -> impl Iterator<Item = Part> + Send {
    let end = size.next_multiple_of(sector_size);
    let mut hole_start = 0;
    ranges.into_iter().chain(std::iter::once(end..end)).flat_map(move |range| {
        let hole = hole_start..range.start;
        hole_start = range.end;
        let hole = (explicit_holes && !hole.is_empty()).then_some(Part::Hole(hole));
        let starts = range.clone().step_by(longest as usize);
        let data = starts.map(move |start| Part::Data(start..range.end.min(start + longest)));
        hole.into_iter().chain(data)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_data_and_holes_in_order() {
        let ranges = [4096..8192, 16384..32768];
        let without: Vec<_> = parts(ranges.to_vec(), 50_000, 4096, false, 12288).collect();
        let data = |range| Part::Data(range);
        assert_eq!(without, [data(4096..8192), data(16384..28672), data(28672..32768)]);
        let with: Vec<_> = parts(ranges.to_vec(), 50_000, 4096, true, 1 << 20).collect();
        let hole = |range| Part::Hole(range);
        assert_eq!(
            with,
            [
                hole(0..4096),
                data(4096..8192),
                hole(8192..16384),
                data(16384..32768),
                hole(32768..53248)
            ]
        );
        assert_eq!(parts(Vec::new(), 0, 4096, true, 4096).count(), 0);
    }
}
