//! Maps of sparse files in tar archives, as GNU tar writes them.

use std::io::Read;
use std::ops::Range;

use anyhow::{Context, ensure};

/// Bytes of a tar block; maps are padded to it.
const BLOCK_BYTES: u64 = 512;
/// The most ranges of a map, which bounds our memory for any archive.
pub(super) const MOST_RANGES: usize = 1 << 20;
/// Digits of a number with its end of line.
const MOST_DIGITS: usize = 21;

/// The data of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Data from the start to the end.
    pub(super) fn whole(len_bytes: u64) -> Self {
        Self(std::iter::once(0..len_bytes).collect())
    }

    /// Ranges whose offsets and lengths are given in turn.
    pub(super) fn of_numbers(numbers: &[u64]) -> anyhow::Result<Self> {
        let (pairs, rest) = numbers.as_chunks::<2>();
        ensure!(rest.is_empty(), "the map ends in the middle");
        ensure!(pairs.len() <= MOST_RANGES, "the map is too long");
        let range = |[start, len_bytes]: &[u64; 2]| Some(*start..start.checked_add(*len_bytes)?);
        let ranges = pairs.iter().map(range).collect::<Option<_>>();
        Ok(Self(ranges.context("the map is longer than any file")?))
    }

    /// The ranges, once they are found to ascend, not to overlap, and to end within a file.
    pub(super) fn within(self, len_bytes: u64) -> anyhow::Result<Vec<Range<u64>>> {
        let mut at = 0;
        for range in &self.0 {
            ensure!(range.start >= at && range.end <= len_bytes, "the map does not fit the file");
            at = range.end;
        }
        Ok(self.0)
    }
}

/// Reads the map before the data in version 1.0: a count, then offset and length of each range, a
/// line each, padded to whole blocks.
pub(super) fn read_map(data: &mut impl Read) -> anyhow::Result<Ranges> {
    let mut lines = Lines { data, read_bytes: 0 };
    let count = usize::try_from(lines.number()?).unwrap_or(usize::MAX);
    ensure!(count <= MOST_RANGES, "the map is too long");
    let numbers = (0..2 * count).map(|_| lines.number()).collect::<anyhow::Result<Vec<_>>>()?;
    let padding = lines.read_bytes.next_multiple_of(BLOCK_BYTES) - lines.read_bytes;
    let skipped = std::io::copy(&mut lines.data.take(padding), &mut std::io::sink())?;
    ensure!(skipped == padding, "the map ends too early");
    Ranges::of_numbers(&numbers)
}

struct Lines<'d, R> {
    data: &'d mut R,
    read_bytes: u64,
}

impl<R: Read> Lines<'_, R> {
    fn number(&mut self) -> anyhow::Result<u64> {
        let mut digits = String::new();
        loop {
            let mut byte = [0];
            self.data.read_exact(&mut byte).context("the map ends too early")?;
            self.read_bytes += 1;
            match byte[0] {
                b'\n' => return digits.parse().context("the map is no numbers"),
                digit if digit.is_ascii_digit() && digits.len() < MOST_DIGITS => {
                    digits.push(char::from(digit));
                }
                _ => anyhow::bail!("the map is no numbers"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_and_its_padding_skipped() {
        let mut bytes = b"2\n0\n10\n4096\n5\n".to_vec();
        bytes.resize(512, 0);
        bytes.extend(b"data");
        let mut data = &bytes[..];
        let ranges = read_map(&mut data).unwrap();
        assert_eq!(ranges.clone().within(4101).unwrap(), [0..10, 4096..4101]);
        assert!(ranges.within(4100).is_err());
        assert_eq!(data, b"data");
    }

    #[test]
    fn maps_that_cannot_be_are_refused() {
        for map in ["", "x\n", "1\n5\n", "99999999999\n", "111111111111111111111111\n"] {
            let mut bytes = map.as_bytes().to_vec();
            bytes.extend([0; 512]);
            assert!(read_map(&mut &bytes[..]).is_err(), "{map:?}");
        }
        assert!(Ranges::of_numbers(&[1]).is_err());
        assert!(Ranges::of_numbers(&[1, u64::MAX]).is_err());
        assert!(Ranges::of_numbers(&[8, 8, 0, 8]).unwrap().within(100).is_err());
    }
}
