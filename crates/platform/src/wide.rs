//! Bytes as names of 16-bit units, and back.
//!
//! A byte that belongs to no UTF-8 is an unpaired low surrogate from [`FIRST`] on.

/// Stands for a byte of zero. Only bytes from 0x80 on need to be stood for.
const FIRST: u16 = 0xDC00;

/// The units of a name of `bytes`.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        units.extend(chunk.valid().encode_utf16());
        units.extend(chunk.invalid().iter().map(|byte| FIRST + u16::from(*byte)));
    }
    units
}

/// The bytes of a name. An unpaired surrogate that stands for no byte is as in WTF-8.
pub(crate) fn to_bytes(units: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in char::decode_utf16(units) {
        match unit.map_err(|error| error.unpaired_surrogate()) {
            Ok(letter) => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(unit @ 0xDC80..=0xDCFF) => bytes.push((unit - FIRST) as u8),
            Err(unit) => {
                let low = |shift: u16| 0x80 | (unit >> shift & 0x3F) as u8;
                bytes.extend_from_slice(&[0xE0 | (unit >> 12) as u8, low(6), low(0)]);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_the_same_bytes_again() {
        let names: [&[u8]; 8] = [
            b"",
            b"bread",
            "Brötchen \u{1F956}".as_bytes(),
            b"Br\xF6tchen",
            b"\xF0\x9F\xA5",
            b"\x80\xBF\xFF/\xC3",
            // Surrogates in UTF-8 are not UTF-8, and stand for no byte.
            b"\xED\xA0\x80\xED\xB2\x80",
            b"\xED\xB2\xFF",
        ];
        for name in names {
            assert_eq!(to_bytes(from_bytes(name).into_iter()), name, "{}", name.escape_ascii());
        }
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        assert_eq!(to_bytes(from_bytes(&all).into_iter()), all);
    }

    #[test]
    fn every_name_has_bytes() {
        assert_eq!(to_bytes([0x61, 0xD800, 0x62].into_iter()), b"a\xED\xA0\x80b");
        assert_eq!(to_bytes([0xDC41].into_iter()), b"\xED\xB1\x81");
        assert_eq!(to_bytes([0xD83E, 0xDD56].into_iter()), "\u{1F956}".as_bytes());
    }
}
