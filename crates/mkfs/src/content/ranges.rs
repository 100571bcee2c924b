//! A file cut into parts.

use std::ops::Range;

/// A range of a file, of whole sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// To be read, up to the file's size.
    Data(Range<u64>),
    /// Reads as zeros.
    Hole(Range<u64>),
}

impl Part {
    /// Bytes to be read.
    pub(super) fn data_bytes(&self) -> u64 {
        match self {
            Self::Data(range) => range.end - range.start,
            Self::Hole(_) => 0,
        }
    }
}

/// The parts that file extents describe, in order, each at most `longest` bytes of data. With
/// `explicit_holes` they cover all sectors of the file, otherwise they leave out holes.
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
