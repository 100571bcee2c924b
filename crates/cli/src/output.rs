//! Standard output and standard error, as far as text goes to them.
//!
//! # Invariants
//! - A terminal obeys control characters, and names, labels and messages can contain any: to a
//!   terminal they are written as escapes, `\x1b`. Scripts get every byte as it is.
//! - Nothing but this module opens the standard streams for text; `clippy.toml` says so.
//! - An error names standard output: otherwise the user would look for the fault in an image.
#![allow(clippy::disallowed_methods, reason = "here they are opened")]

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;

use larder_platform::errno::in_words;

/// Standard output for text, for this caller alone.
pub fn stdout() -> Stdout {
    let out = io::stdout().lock();
    let filter = out.is_terminal().then(Filter::default);
    Stdout { out, filter }
}

/// Standard output for the content of files, which no terminal is spared.
pub fn stdout_of_content() -> Stdout {
    Stdout { out: io::stdout().lock(), filter: None }
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub fn is_error_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes a text to standard error. Where that is not possible it does nothing: there is no other
/// place to report it, and a panic would not help.
pub fn say(text: fmt::Arguments<'_>) {
    let mut err = io::stderr().lock();
    let text = text.to_string();
    let _ = if err.is_terminal() {
        Filter::default().write_all(&mut err, text.as_bytes())
    } else {
        err.write_all(text.as_bytes())
    };
}

/// Writes a name or path in a line of text. On a terminal it stays on its line.
pub fn write_name(out: &mut impl Write, name: impl AsRef<OsStr>) -> io::Result<()> {
    let name = name.as_ref().as_bytes();
    if is_terminal() && name.iter().any(u8::is_ascii_control) {
        return write!(out, "{}", name.escape_ascii());
    }
    out.write_all(name)
}

/// Writes a name or path in a line of its own to standard output.
pub fn write_line(name: impl AsRef<OsStr>) -> io::Result<()> {
    let mut out = stdout();
    write_name(&mut out, name)?;
    writeln!(out)
}

/// See [`stdout`].
pub struct Stdout {
    out: StdoutLock<'static>,
    /// None if bytes are written as they are.
    filter: Option<Filter>,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.filter {
            Some(filter) => filter.write_all(&mut self.out, bytes).map(|()| bytes.len()),
            None => self.out.write(bytes),
        };
        written.map_err(|error| named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| named(&error))
    }
}

fn named(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {}", in_words(error)))
}

/// Replaces control characters other than newlines and tabs.
#[derive(Debug, Default)]
struct Filter {
    /// The last byte began a character that may be one, and is not written yet.
    begun: bool,
}

/// The first byte of U+0080 to U+00BF in UTF-8. The first half of these are control characters.
const BEGIN: u8 = 0xc2;

impl Filter {
    fn write_all(&mut self, out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            let (was_begun, is_control) = (std::mem::take(&mut self.begun), is_control(byte));
            if was_begun && (0x80..0xa0).contains(&byte) {
                text.extend_from_slice(format!("\\x{BEGIN:02x}\\x{byte:02x}").as_bytes());
                continue;
            }
            text.extend(was_begun.then_some(BEGIN));
            match byte {
                BEGIN => self.begun = true,
                _ if is_control => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
                _ => text.push(byte),
            }
        }
        out.write_all(&text)
    }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\n' && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_wherever_they_are_cut() {
        let text = "a\x1b[2J\u{9b}2J\r\n\tä\u{a0}\x7f".as_bytes();
        let expected = "a\\x1b[2J\\xc2\\x9b2J\\x0d\n\tä\u{a0}\\x7f";
        for cut in 0..text.len() {
            let (mut filter, mut written) = (Filter::default(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                filter.write_all(&mut written, part).unwrap();
            }
            assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
    }
}
