//! Bytes as digits.

use std::fmt::Write;

/// Two digits for each byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that `text` consists of, as [`text`] writes them.
pub(crate) fn bytes<const LEN: usize>(digits: &str) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != LEN || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    (text(&bytes) == digits).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written() {
        assert_eq!(text(&[0, 10, 255]), "000aff");
        assert_eq!(bytes("000aff"), Some([0, 10, 255]));
        for other in ["000AFF", "000af", "000aff0", "+00aff", "000aüf"] {
            assert_eq!(bytes::<3>(other), None, "{other}");
        }
    }
}
