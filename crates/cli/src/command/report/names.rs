//! Names of files as text that shows every byte and misleads nobody.

use std::fmt::Write;

/// The name, with a backslash as `\\`, each byte that is not UTF-8 and each control character as
/// `\xNN`, and characters that change the direction of text as `\u{NNNN}`.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            // Writing to a text does not fail.
            let _ = match character {
                '\\' => write!(text, "\\\\"),
                _ if character.is_ascii_control() => write!(text, "\\x{:02x}", character as u32),
                _ if character.is_control() || turns_text(character) => {
                    write!(text, "\\u{{{:x}}}", character as u32)
                }
                _ => write!(text, "{character}"),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn turns_text(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn every_byte_shows() {
        assert_eq!(shown(b"<b>a & \"b\"</b>"), "<b>a & \"b\"</b>");
        assert_eq!(shown(b"a\xff\xc3(b\\\n\x7f"), "a\\xff\\xc3(b\\\\\\x0a\\x7f");
        assert_eq!(shown("ä\u{202e}gpj.exe\u{85}".as_bytes()), "ä\\u{202e}gpj.exe\\u{85}");
    }
}
