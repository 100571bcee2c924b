//! A stream as text, one line for each command, in the form of `btrfs receive --dump`.

use std::io::{self, Read, Write};

use jiff::tz::TimeZone;
use larder_platform::errno::in_words;

use crate::description::{Field, Plain, Style, as_text, describe, join};
use crate::wire::{Command, Reader, StreamError, Timestamp};

/// Width of the commands' names.
const NAME_COLUMNS: usize = 16;
/// Width of the paths, which may be longer, with the space after them.
const PATH_COLUMNS: usize = 32;

/// A dump that did not get to its end.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The stream cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The text cannot be written.
    #[error("cannot write: {}", in_words(.0))]
    Output(#[source] io::Error),
}

/// Writes the streams in `input` to `output` as text, a line for each command, with times in
/// `zone`.
///
/// Every line is that of `btrfs receive --dump`: it escapes unprintable bytes in paths, but prints
/// values of extended attributes as they are, up to their first zero byte.
pub fn dump(input: impl Read, mut output: impl Write, zone: &TimeZone) -> Result<(), DumpError> {
    let mut reader = Reader::new(input);
    let mut line = Line { subvolume: Vec::new(), zone };
    let mut text = Vec::new();
    while let Some(command) = reader.next()? {
        text.clear();
        line.put_command(&command, &mut text);
        output.write_all(&text).map_err(DumpError::Output)?;
    }
    output.flush().map_err(DumpError::Output)
}

/// The lines of commands.
struct Line<'z> {
    /// Path of the subvolume whose commands follow.
    subvolume: Vec<u8>,
    zone: &'z TimeZone,
}

impl Line<'_> {
    /// Appends the line of a command.
    fn put_command(&mut self, command: &Command<'_>, out: &mut Vec<u8>) {
        let (Some(path), Some(description)) = (command.path(), describe(command)) else { return };
        // Writing cannot fail: the text only grows.
        let _ = write!(out, "{:<NAME_COLUMNS$}", command.name());
        let start = out.len();
        if let Command::Subvol { .. } | Command::Snapshot { .. } = command {
            self.subvolume = join(b".", as_text(path));
            escape(&self.subvolume, out);
        } else {
            escape(&self.below(path), out);
        }
        if description.has_dump() {
            let columns = (out.len() - start + 1).max(PATH_COLUMNS);
            out.resize(start + columns, b' ');
            description.put_dump(out, self);
        }
        out.push(b'\n');
    }

    fn below(&self, path: &[u8]) -> Vec<u8> {
        join(&self.subvolume, as_text(path))
    }
}

impl Style for Line<'_> {
    fn put(&self, field: Field<'_>, letter: &str, out: &mut Vec<u8>) {
        match (field, letter) {
            (Field::Path(path), "r") => out.extend_from_slice(&self.below(path)),
            (Field::Path(path), _) => escape(&self.below(path), out),
            (Field::Bytes(bytes), letter) if letter != "r" => escape(bytes, out),
            (Field::Time(time), _) => out.extend_from_slice(text_of(time, self.zone).as_bytes()),
            _ => Plain.put(field, letter, out),
        }
    }
}

/// Appends text, with escapes in place of unprintable bytes.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in as_text(text) {
        match byte {
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x1b => out.extend_from_slice(b"\\e"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x0b => out.extend_from_slice(b"\\v"),
            b' ' => out.extend_from_slice(b"\\ "),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x21..=0x7e => out.push(byte),
            _ => {
                // Writing cannot fail: the text only grows.
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}

/// Seconds in 400 years of the calendar, after which everything repeats.
const CYCLE_SECONDS: i64 = 146_097 * 24 * 60 * 60;
/// Years within this many seconds of 1970 have four digits in the calendar.
const NEAR_SECONDS: i64 = 200_000_000_000;

/// `2026-11-20T10:07:51+0000`, of any year.
fn text_of(time: Timestamp, zone: &TimeZone) -> String {
    let is_near = (-NEAR_SECONDS / 4..NEAR_SECONDS).contains(&time.seconds);
    let (cycles, seconds) = if is_near {
        (0, time.seconds)
    } else {
        (time.seconds.div_euclid(CYCLE_SECONDS), time.seconds.rem_euclid(CYCLE_SECONDS))
    };
    let within = jiff::Timestamp::from_second(seconds);
    let within = within.expect("it is in the calendar").to_zoned(zone.clone());
    let year = i64::from(within.year()) + cycles * 400;
    format!("{year}{}", within.strftime("-%m-%dT%H:%M:%S%z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_text() {
        let text = |seconds| text_of(Timestamp { seconds, nanoseconds: 0 }, &TimeZone::UTC);
        assert_eq!(text(0), "1970-01-01T00:00:00+0000");
        assert_eq!(text(i64::MAX), "292277026596-12-04T15:30:07+0000");
        assert_eq!(text(i64::MIN), "-292277022657-01-27T08:29:52+0000");
        assert_eq!(text(NEAR_SECONDS - 1), "8307-10-01T19:33:19+0000");
        assert_eq!(text(NEAR_SECONDS), "8307-10-01T19:33:20+0000");
    }
}
