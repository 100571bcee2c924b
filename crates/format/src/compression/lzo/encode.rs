//! Encoding LZO1X: greedy, one candidate per hash of four bytes, made for speed like the kernel's.
//!
//! It uses all instructions that [`decode`](super::decode) lists, except the two short matches
//! `0000`, which need matches of two and three bytes.

/// Matches shorter than this are left as literals.
const MIN_MATCH_BYTES: usize = 4;

/// The largest distance that an instruction can express.
const MAX_DISTANCE: usize = 0xbfff;

/// The longest match and the largest distance of the two-byte instruction.
const SHORT_MATCH_BYTES: usize = 8;
const SHORT_DISTANCE: usize = 0x0800;

/// The largest distance of instruction `001`.
const MIDDLE_DISTANCE: usize = 0x4000;

/// Literals that the first byte of a stream can announce.
const FIRST_RUN_BYTES: usize = 238;

const HASH_BITS: u32 = 12;

/// The longest input: positions in it have to fit the table's entries.
const MAX_INPUT_BYTES: usize = 1 << u16::BITS;

/// Remembers where each hash of four bytes was last seen.
pub(super) struct Matcher {
    positions: Box<[u16; 1 << HASH_BITS]>,
}

impl Matcher {
    pub(super) fn new() -> Self {
        Self { positions: Box::new([0; 1 << HASH_BITS]) }
    }

    /// Writes the stream for one sector's data into `output` and returns its length; `None` if it
    /// does not fit.
    pub(super) fn encode(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        assert!(input.len() <= MAX_INPUT_BYTES, "a sector has at most 64 KiB");
        // Position 0 means "never seen": every candidate is compared with the data.
        self.positions.fill(0);
        let mut stream = Stream { output, len: 0 };
        let mut literals_from = 0;
        // A stream cannot begin with a match.
        let mut at = 1;
        while let Some(bytes) = four_bytes(input, at) {
            let candidate = self.swap_position(bytes, at);
            if four_bytes(input, candidate) != Some(bytes) || at - candidate > MAX_DISTANCE {
                // After a long stretch without a match, another is unlikely: speed up.
                at += 1 + (at - literals_from) / 32;
                continue;
            }
            let distance = at - candidate;
            let start = at - common_suffix(&input[..candidate], &input[literals_from..at]);
            let end = at
                + MIN_MATCH_BYTES
                + common_prefix(
                    &input[candidate + MIN_MATCH_BYTES..],
                    &input[at + MIN_MATCH_BYTES..],
                );
            stream.put_literals(&input[literals_from..start])?;
            stream.put_match(end - start, distance)?;
            literals_from = end;
            at = end;
        }
        stream.put_literals(&input[literals_from..])?;
        stream.put_end()?;
        Some(stream.len)
    }

    /// Records a position and returns the one recorded before.
    fn swap_position(&mut self, bytes: u32, at: usize) -> usize {
        let slot = bytes.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS);
        usize::from(std::mem::replace(&mut self.positions[slot as usize], at as u16))
    }
}

fn four_bytes(input: &[u8], at: usize) -> Option<u32> {
    input.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let equal = 8 * words.take_while(|(a, b)| a == b).count();
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The instructions written so far.
struct Stream<'a> {
    output: &'a mut [u8],
    len: usize,
}

impl Stream<'_> {
    fn put_literals(&mut self, literals: &[u8]) -> Option<()> {
        match literals.len() {
            0 => return Some(()),
            len if self.len == 0 && len <= FIRST_RUN_BYTES => self.put(&[17 + len as u8])?,
            // Two bits in the last byte but one of a match are for this. Only a match can come
            // before: the first run of a stream is a separate case, and two runs are never
            // adjacent.
            len @ 1..=3 => self.output[self.len - 2] |= len as u8,
            len @ 4..=18 => self.put(&[len as u8 - 3])?,
            len => {
                self.put(&[0])?;
                self.put_extra_length(len - 18)?;
            }
        }
        self.put(literals)
    }

    fn put_match(&mut self, len: usize, distance: usize) -> Option<()> {
        if len <= SHORT_MATCH_BYTES && distance <= SHORT_DISTANCE {
            let [high, low] = [(distance - 1) >> 3, (distance - 1) & 7];
            return self.put(&[(((len - 1) << 5) | (low << 2)) as u8, high as u8]);
        }
        let low = if distance <= MIDDLE_DISTANCE {
            self.put_match_length(0x20, len, 33)?;
            distance - 1
        } else {
            let beyond = distance - MIDDLE_DISTANCE;
            self.put_match_length(0x10 | (beyond >> 11 & 8) as u8, len, 9)?;
            beyond & 0x3fff
        };
        self.put(&(low as u16 * 4).to_le_bytes())
    }

    /// Writes an instruction's first byte, whose length field holds lengths up to `longest`, and
    /// the bytes for the excess.
    fn put_match_length(&mut self, kind: u8, len: usize, longest: usize) -> Option<()> {
        if len <= longest {
            self.put(&[kind | (len - 2) as u8])
        } else {
            self.put(&[kind])?;
            self.put_extra_length(len - longest)
        }
    }

    fn put_extra_length(&mut self, mut len: usize) -> Option<()> {
        while len > 255 {
            self.put(&[0])?;
            len -= 255;
        }
        self.put(&[len as u8])
    }

    fn put_end(&mut self) -> Option<()> {
        self.put(&[0x11, 0, 0])
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.output.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}
