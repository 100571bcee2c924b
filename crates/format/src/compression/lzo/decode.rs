//! Decoding LZO1X.
//!
//! A stream is a run of instructions. An instruction's first byte tells its kind. The meaning of a
//! small first byte depends on the literals before it:
//!
//! | first byte | after | meaning |
//! | --- | --- | --- |
//! | `0000LLLL` | a match without literals | a run of 3 + L literals |
//! | `0000DDSS` `H` | one to three literals | match of 2, distance 1 + 4 H + D |
//! | `0000DDSS` `H` | a longer run | match of 3, distance 2049 + 4 H + D |
//! | `0001HLLL` `DDDDDDSS` `D` | anything | match of 2 + L, distance 16384 + 16384 H + D |
//! | `001LLLLL` `DDDDDDSS` `D` | anything | match of 2 + L, distance 1 + D |
//! | `01LDDDSS` `H` | anything | match of 3 + L, distance 1 + 8 H + D |
//! | `1LLDDDSS` `H` | anything | match of 5 + L, distance 1 + 8 H + D |
//!
//! In the kinds `0000`, `0001` and `001` an L of zero stands for more than its largest value:
//! further bytes follow, of which each zero adds 255 and the first other one adds itself to that
//! value. S literals follow a match. A distance of exactly 16384 in kind `0001` ends the stream.
//! If the first byte of a stream is above 17, it is a run of that less 17 literals.

/// How a stream ended.
pub(super) enum Progress {
    /// At its end mark, which was the last of the input.
    Ended { produced_bytes: usize },
    /// Before its end mark: there was no room for more output.
    OutputFull,
}

/// The first offence of a stream.
pub(super) struct Malformed {
    pub(super) offset_bytes: usize,
    pub(super) reason: &'static str,
}

/// Decodes a stream until it ends or `output` is full.
pub(super) fn decode(input: &[u8], output: &mut [u8]) -> Result<Progress, Malformed> {
    let mut decoder = Decoder { input, output, read: 0, written: 0 };
    match decoder.run() {
        Ok(()) => Ok(Progress::Ended { produced_bytes: decoder.written }),
        Err(Stop::OutputFull) => Ok(Progress::OutputFull),
        Err(Stop::Malformed(reason)) => Err(Malformed { offset_bytes: decoder.read, reason }),
    }
}

/// Why decoding cannot go on.
enum Stop {
    OutputFull,
    Malformed(&'static str),
}

/// The previous instruction, which decides the meaning of first bytes below 16.
#[derive(Clone, Copy)]
enum Literals {
    None,
    Few,
    Run,
}

/// A match, and the number of literals after it.
struct Match {
    len: usize,
    distance: usize,
    literals: usize,
}

const CUT_SHORT: Stop = Stop::Malformed("segment ends within an instruction");

struct Decoder<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    read: usize,
    written: usize,
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let mut before = self.first_run()?;
        loop {
            let instruction = self.byte()?;
            let found = match (instruction >> 4, before) {
                (0, Literals::None) => {
                    let len = self.length(usize::from(instruction), 15)? + 3;
                    self.copy_literals(len)?;
                    before = Literals::Run;
                    continue;
                }
                (0, Literals::Few) => self.near_match(instruction, 2, 1)?,
                (0, Literals::Run) => self.near_match(instruction, 3, 2049)?,
                (1, _) => {
                    let found = self.far_match(instruction)?;
                    if found.distance == 16384 {
                        return self.end(&found);
                    }
                    found
                }
                (2 | 3, _) => {
                    let len = self.length(usize::from(instruction & 31), 31)? + 2;
                    let (distance, literals) = self.distance_and_literals()?;
                    Match { len, distance: distance + 1, literals }
                }
                (4.., _) => {
                    let high = usize::from(self.byte()?);
                    Match {
                        len: usize::from(instruction >> 5) + 1,
                        distance: (high << 3) + usize::from(instruction >> 2 & 7) + 1,
                        literals: usize::from(instruction & 3),
                    }
                }
            };
            self.copy_match(found.distance, found.len)?;
            self.copy_literals(found.literals)?;
            before = if found.literals == 0 { Literals::None } else { Literals::Few };
        }
    }

    /// The literals that a stream may begin with.
    fn first_run(&mut self) -> Result<Literals, Stop> {
        let first = usize::from(*self.input.first().ok_or(CUT_SHORT)?);
        // Linux marks streams of its run-length variant, which btrfs never writes, with 17. In the
        // three bytes of an empty stream it starts the end mark.
        if first == 17 && self.input.len() >= 5 {
            return Err(Stop::Malformed("unsupported LZO bitstream version"));
        }
        if first <= 17 {
            return Ok(Literals::None);
        }
        self.read += 1;
        self.copy_literals(first - 17)?;
        Ok(if first - 17 < 4 { Literals::Few } else { Literals::Run })
    }

    fn near_match(&mut self, instruction: u8, len: usize, base: usize) -> Result<Match, Stop> {
        let high = usize::from(self.byte()?);
        let distance = (high << 2) + usize::from(instruction >> 2) + base;
        Ok(Match { len, distance, literals: usize::from(instruction & 3) })
    }

    fn far_match(&mut self, instruction: u8) -> Result<Match, Stop> {
        let len = self.length(usize::from(instruction & 7), 7)? + 2;
        let (low, literals) = self.distance_and_literals()?;
        let distance = (usize::from(instruction & 8) << 11) + low + 16384;
        Ok(Match { len, distance, literals })
    }

    fn end(&self, mark: &Match) -> Result<(), Stop> {
        if mark.len != 3 {
            return Err(Stop::Malformed("invalid end mark"));
        }
        if self.read != self.input.len() {
            return Err(Stop::Malformed("segment continues after its end mark"));
        }
        Ok(())
    }

    /// A length field's value: `field`, unless that is zero and further bytes follow.
    fn length(&mut self, field: usize, field_max: usize) -> Result<usize, Stop> {
        if field != 0 {
            return Ok(field);
        }
        let zeros = self.input[self.read..].iter().take_while(|&&byte| byte == 0).count();
        self.read += zeros;
        Ok(field_max + zeros * 255 + usize::from(self.byte()?))
    }

    fn distance_and_literals(&mut self) -> Result<(usize, usize), Stop> {
        let value = usize::from(u16::from_le_bytes([self.byte()?, self.byte()?]));
        Ok((value >> 2, value & 3))
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.input.get(self.read).ok_or(CUT_SHORT)?;
        self.read += 1;
        Ok(byte)
    }

    fn copy_literals(&mut self, len: usize) -> Result<(), Stop> {
        let literals = self.input.get(self.read..self.read + len).ok_or(CUT_SHORT)?;
        let fitting = len.min(self.output.len() - self.written);
        self.output[self.written..self.written + fitting].copy_from_slice(&literals[..fitting]);
        self.read += len;
        self.advance(fitting, len)
    }

    fn copy_match(&mut self, distance: usize, len: usize) -> Result<(), Stop> {
        let from = self
            .written
            .checked_sub(distance)
            .ok_or(Stop::Malformed("match reaches before the start of the sector"))?;
        let fitting = len.min(self.output.len() - self.written);
        let end = self.written + fitting;
        // A match longer than its distance repeats itself: the copied part doubles every time.
        let mut to = self.written;
        while to < end {
            let chunk = (to - from).min(end - to);
            self.output.copy_within(from..from + chunk, to);
            to += chunk;
        }
        self.advance(fitting, len)
    }

    fn advance(&mut self, fitting: usize, wanted: usize) -> Result<(), Stop> {
        self.written += fitting;
        if fitting < wanted { Err(Stop::OutputFull) } else { Ok(()) }
    }
}
