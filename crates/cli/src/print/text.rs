//! Writing numbers, names and flags to a buffer.

use larder_format::{BlockGroupFlags, Uuid};
use zerocopy::little_endian::{U16, U32, U64};

/// Something that can be appended to a buffer as text.
pub trait Put {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
}

/// Appends each argument in turn.
macro_rules! put {
    ($out:expr, $($part:expr),+ $(,)?) => {{
        $($crate::print::text::Put::put(&$part, $out);)+
    }};
}
pub(crate) use put;

impl<T: Put + ?Sized> Put for &T {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
}

impl Put for str {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Put for [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

macro_rules! put_number {
    ($($type:ty)*) => {$(
        impl Put for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
            }
        }
    )*};
}
put_number!(u8 u16 u32 u64 usize i64);

macro_rules! put_little_endian {
    ($($type:ty)*) => {$(
        impl Put for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.get().put(out);
            }
        }
    )*};
}
put_little_endian!(U16 U32 U64);

impl Put for Uuid {
    fn put(&self, out: &mut Vec<u8>) {
        let mut buffer = Uuid::encode_buffer();
        out.extend_from_slice(self.hyphenated().encode_lower(&mut buffer).as_bytes());
    }
}

impl Put for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        Uuid::from_bytes(*self).put(out);
    }
}

/// A number in hexadecimal, without a prefix.
pub struct Hex(pub u64);

impl Put for Hex {
    fn put(&self, out: &mut Vec<u8>) {
        put_radix(self.0, 16, 1, out);
    }
}

/// A number in hexadecimal, of 16 digits.
pub struct Hex16(pub u64);

impl Put for Hex16 {
    fn put(&self, out: &mut Vec<u8>) {
        put_radix(self.0, 16, 16, out);
    }
}

/// Bytes in hexadecimal, in the order in which they are stored.
pub struct HexBytes<'a>(pub &'a [u8]);

impl Put for HexBytes<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|byte| put_radix(u64::from(*byte), 16, 2, out));
    }
}

/// A number in octal.
pub struct Octal(pub u64);

impl Put for Octal {
    fn put(&self, out: &mut Vec<u8>) {
        put_radix(self.0, 8, 1, out);
    }
}

fn put_radix(mut number: u64, radix: u64, min_digits: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 22];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(number % radix) as usize];
        number /= radix;
    }
    out.extend_from_slice(&digits[at.min(digits.len() - min_digits)..]);
}

/// Bits by name, joined by `|`; `none` for no bit.
pub struct Flags<'a> {
    /// The bits.
    pub bits: u64,
    /// Names of bits, in the order in which they are written.
    pub names: &'a [(u64, &'a str)],
}

impl Put for Flags<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        let mut set = self.names.iter().filter(|(bit, _)| self.bits & bit != 0);
        let Some((_, first)) = set.next() else {
            return "none".put(out);
        };
        first.put(out);
        set.for_each(|(_, name)| put!(out, "|", **name));
    }
}

impl Put for BlockGroupFlags {
    /// `DATA|RAID1` and the like.
    fn put(&self, out: &mut Vec<u8>) {
        const TYPES: [(BlockGroupFlags, &str); 3] = [
            (BlockGroupFlags::DATA, "DATA"),
            (BlockGroupFlags::SYSTEM, "SYSTEM"),
            (BlockGroupFlags::METADATA, "METADATA"),
        ];
        let start = out.len();
        for (flag, name) in TYPES {
            if self.contains(flag) {
                if out.len() > start {
                    out.push(b'|');
                }
                name.put(out);
            }
        }
        if out.len() == start {
            "none".put(out);
        }
        out.push(b'|');
        match self.profile() {
            Some(larder_format::Profile::Single) => "single".put(out),
            Some(profile) => profile.name().to_ascii_uppercase().as_str().put(out),
            None => "unknown".put(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(part: &impl Put) -> String {
        let mut out = Vec::new();
        part.put(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers() {
        assert_eq!(text(&Hex(0)), "0");
        assert_eq!(text(&Hex(0x371)), "371");
        assert_eq!(text(&Hex16(0xabc)), "0000000000000abc");
        assert_eq!(text(&Octal(0o100_644)), "100644");
        assert_eq!(text(&U64::new(u64::MAX)), "18446744073709551615");
        assert_eq!(text(&HexBytes(&[0, 0xff])), "00ff");
    }

    #[test]
    fn block_group_flags() {
        assert_eq!(text(&(BlockGroupFlags::DATA | BlockGroupFlags::RAID1C3)), "DATA|RAID1C3");
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        assert_eq!(text(&mixed), "DATA|METADATA|single");
    }
}
