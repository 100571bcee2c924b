//! Values of extended attributes as text, in the forms of `getfattr` and `setfattr`.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// In double quotes.
    Text,
    /// With 0x before it.
    Hex,
    /// With 0s before it.
    Base64,
}

impl Encoding {
    /// Text if most of a value can be printed.
    pub fn that_suits(value: &[u8]) -> Self {
        let value = value.strip_suffix(&[0]).unwrap_or(value);
        let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
        let others = value.iter().filter(|byte| !is_printable(byte)).count();
        if value.len() >= 8 * others { Self::Text } else { Self::Base64 }
    }

    /// Writes a value.
    pub fn encode(self, value: &[u8]) -> Vec<u8> {
        match self {
            Self::Text => quoted(value),
            Self::Hex => {
                let digits = value.iter().map(|byte| format!("{byte:02x}"));
                format!("0x{}", digits.collect::<String>()).into_bytes()
            }
            Self::Base64 => format!("0s{}", STANDARD.encode(value)).into_bytes(),
        }
    }
}

fn quoted(value: &[u8]) -> Vec<u8> {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    let mut text = vec![b'"'];
    for byte in value {
        match byte {
            0 | b'\n' | b'\r' => text.extend(format!("\\{byte:03o}").bytes()),
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
    text
}

/// Reads a value in any of the forms; another text is taken as it is.
pub fn decode(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => decode_hex(digits).context("bad hexadecimal digits"),
        [b'0', b's' | b'S', digits @ ..] => STANDARD.decode(digits).context("bad base64"),
        [b'"', inner @ .., b'"'] => decode_quoted(inner),
        _ => Ok(text.to_vec()),
    }
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

fn decode_quoted(mut inner: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    while let [first, rest @ ..] = inner {
        inner = rest;
        if *first != b'\\' {
            value.push(*first);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|byte| (b'0'..b'8').contains(*byte)).count();
        if digits == 3 {
            let number =
                rest[..3].iter().fold(0, |number, digit| number << 3 | u32::from(digit - b'0'));
            value.push(u8::try_from(number).context("an octal number is more than a byte")?);
            inner = &rest[3..];
        } else if let [escaped, rest @ ..] = rest {
            value.push(*escaped);
            inner = rest;
        } else {
            bail!("a backslash with nothing after it");
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_are_read_back() {
        for len in 0..70 {
            let value: Vec<u8> = (0..len).map(|number: u8| number.wrapping_mul(37)).collect();
            for encoding in [Encoding::Hex, Encoding::Base64] {
                assert_eq!(decode(&encoding.encode(&value)).unwrap(), value);
            }
            let text: Vec<u8> = value.iter().map(|byte| byte | 1).collect();
            assert_eq!(decode(&Encoding::Text.encode(&text)).unwrap(), text);
        }
    }

    #[test]
    fn unreadable_text_is_refused() {
        for text in ["0x1", "0xgg", "0sA", "0sA===", "0sAA==AAAA", "\"\\\"", "\"\\777\""] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(decode(b"\"open").unwrap(), b"\"open");
        assert_eq!(decode(b"back\\slash").unwrap(), b"back\\slash");
    }
}
