//! How numbers and texts lie in manifests and maps: integers of 7 bits a byte, lowest first, and a
//! checksum at the end of all.

use std::fmt;

use crc_fast::crc32_iscsi;

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for each in items {
            item(self, each);
        }
    }

    /// The bytes so far, and their checksum.
    pub(crate) fn sealed(mut self) -> Vec<u8> {
        let checksum = crc32_iscsi(&self.0);
        self.raw(&checksum.to_le_bytes());
        self.0
    }

    /// The same, of a part that says nowhere in it which part it is. The checksum covers that.
    pub(crate) fn sealed_as(mut self, identity: Identity) -> Vec<u8> {
        let checksum = checksum_as(&self.0, identity);
        self.raw(&checksum.to_le_bytes());
        self.0
    }
}

/// Which part of which object something is, in two numbers.
pub(crate) type Identity = [u64; 2];

fn checksum_as(content: &[u8], identity: Identity) -> u32 {
    let of_content = crc32_iscsi(content).to_le_bytes();
    crc32_iscsi(&[&identity[0].to_le_bytes()[..], &identity[1].to_le_bytes(), &of_content].concat())
}

#[derive(Debug)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Reads what [`Encoder::sealed`] returned.
    pub(crate) fn unsealed(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (content, checksum) = bytes.split_last_chunk().ok_or(Malformed("it is cut off"))?;
        if crc32_iscsi(content) != u32::from_le_bytes(*checksum) {
            return Err(Malformed("its checksum is wrong"));
        }
        Ok(Self(content))
    }

    /// Reads what [`Encoder::sealed_as`] returned for the same identity. Earlier versions sealed all
    /// parts without one.
    pub(crate) fn unsealed_as(bytes: &'a [u8], identity: Identity) -> Result<Self, Malformed> {
        match bytes.split_last_chunk() {
            Some((content, checksum))
                if checksum_as(content, identity) == u32::from_le_bytes(*checksum) =>
            {
                Ok(Self(content))
            }
            _ => Self::unsealed(bytes),
        }
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        self.0.split_off(..len).ok_or(Malformed("it ends too early"))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.raw(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed("a number in it is too large"))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed("a number in it is too large"))
    }

    pub(crate) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        Ok(self.raw(LEN)?.try_into().expect("it has this length"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.small()?;
        self.raw(len)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed("a text in it is not UTF-8"))
    }

    /// Each item takes at least one byte: so the memory for them is bounded by what was read.
    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len: usize = self.small()?;
        if len > self.0.len() {
            return Err(Malformed("a list in it is too long"));
        }
        (0..len).map(|_| item(self)).collect()
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("it is too long")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX];
        let mut encoder = Encoder::default();
        encoder.list(&numbers, |encoder, number| encoder.number(*number));
        encoder.text("bread");
        let sealed = encoder.sealed();
        let mut decoder = Decoder::unsealed(&sealed).unwrap();
        assert_eq!(decoder.list(Decoder::number).unwrap(), numbers);
        assert_eq!(decoder.text().unwrap(), "bread");
        decoder.end().unwrap();
    }

    #[test]
    fn no_change_is_overlooked() {
        let mut encoder = Encoder::default();
        encoder.text("bread and butter");
        let sealed = encoder.sealed();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 4;
            assert!(Decoder::unsealed(&changed).is_err(), "byte {at}");
        }
        for len in 0..sealed.len() {
            assert!(Decoder::unsealed(&sealed[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn no_part_passes_for_another() {
        let encoder = || {
            let mut encoder = Encoder::default();
            encoder.text("bread");
            encoder
        };
        let sealed = encoder().sealed_as([1, 2]);
        assert!(Decoder::unsealed_as(&sealed, [1, 2]).is_ok());
        for other in [[1, 3], [2, 1], [2, 2], [0, 0]] {
            assert!(Decoder::unsealed_as(&sealed, other).is_err(), "{other:?}");
        }
        assert!(Decoder::unsealed(&sealed).is_err());
        assert!(Decoder::unsealed_as(&encoder().sealed(), [1, 2]).is_ok());
    }

    #[test]
    fn a_long_list_in_a_short_text_is_refused() {
        let mut encoder = Encoder::default();
        encoder.number(u64::MAX);
        let sealed = encoder.sealed();
        let list = Decoder::unsealed(&sealed).unwrap().list(Decoder::number);
        assert_eq!(list, Err(Malformed("a list in it is too long")));
    }
}
