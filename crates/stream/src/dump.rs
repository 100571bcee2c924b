//! A stream as text, one line for each command, in the form of `btrfs receive --dump`.

use std::io::{self, Read, Write};

use jiff::tz::TimeZone;

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
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

/// Writes the streams in `input` to `output` as text, a line for each command, with times in
/// `zone`.
///
/// Every line is that of `btrfs receive --dump`: it escapes unprintable bytes in paths, but prints
/// values of extended attributes as they are, up to their first zero byte.
pub fn dump(input: impl Read, mut output: impl Write, zone: &TimeZone) -> Result<(), DumpError> {
    let mut reader = Reader::new(input);
    let mut line = Line { subvolume: Vec::new(), text: Vec::new(), zone };
    while let Some(command) = reader.next()? {
        line.text.clear();
        line.command(&command);
        output.write_all(&line.text).map_err(DumpError::Output)?;
    }
    output.flush().map_err(DumpError::Output)
}

/// The line of a command.
struct Line<'z> {
    /// Path of the subvolume whose commands follow.
    subvolume: Vec<u8>,
    text: Vec<u8>,
    zone: &'z TimeZone,
}

macro_rules! put {
    ($line:expr, $($arguments:tt)*) => {
        // Writing cannot fail: the text only grows.
        let _ = write!($line.text, $($arguments)*);
    };
}

impl Line<'_> {
    fn command(&mut self, command: &Command<'_>) {
        match *command {
            Command::Subvol { path, .. } | Command::Snapshot { path, .. } => {
                self.subvolume = join(b".", path);
                self.start(command, &self.subvolume.clone());
            }
            Command::Mkfile { path, .. }
            | Command::Mkdir { path, .. }
            | Command::Mknod { path, .. }
            | Command::Mkfifo { path, .. }
            | Command::Mksock { path, .. }
            | Command::Symlink { path, .. }
            | Command::Rename { path, .. }
            | Command::Link { path, .. }
            | Command::Unlink { path }
            | Command::Rmdir { path }
            | Command::SetXattr { path, .. }
            | Command::RemoveXattr { path, .. }
            | Command::Write { path, .. }
            | Command::Clone { path, .. }
            | Command::Truncate { path, .. }
            | Command::Chmod { path, .. }
            | Command::Chown { path, .. }
            | Command::Utimes { path, .. }
            | Command::UpdateExtent { path, .. }
            | Command::Fallocate { path, .. }
            | Command::Fileattr { path, .. }
            | Command::EncodedWrite { path, .. }
            | Command::EnableVerity { path, .. } => {
                self.start(command, &join(&self.subvolume, path));
            }
            Command::End => return,
        }
        self.details(command);
        self.text.push(b'\n');
    }

    /// The command's name and its path.
    fn start(&mut self, command: &Command<'_>, path: &[u8]) {
        put!(self, "{:<NAME_COLUMNS$}", command.name());
        let start = self.text.len();
        self.escaped(path);
        if !has_details(command) {
            return;
        }
        let columns = (self.text.len() - start + 1).max(PATH_COLUMNS);
        self.text.resize(start + columns, b' ');
    }

    fn details(&mut self, command: &Command<'_>) {
        match *command {
            Command::Subvol { uuid, ctransid, .. } => {
                put!(self, "uuid={uuid} transid={ctransid}");
            }
            Command::Snapshot { uuid, ctransid, clone_uuid, clone_ctransid, .. } => {
                put!(self, "uuid={uuid} transid={ctransid} ");
                put!(self, "parent_uuid={clone_uuid} parent_transid={clone_ctransid}");
            }
            Command::Mknod { rdev, mode, .. } => {
                put!(self, "mode={mode:o} dev=0x{rdev:x}");
            }
            Command::Symlink { target: path, .. } | Command::Link { existing: path, .. } => {
                self.text.extend_from_slice(b"dest=");
                self.escaped(path);
            }
            Command::Rename { to, .. } => {
                self.text.extend_from_slice(b"dest=");
                self.escaped(&join(&self.subvolume, to));
            }
            Command::SetXattr { name, data, .. } => {
                let parts = [b"name=", as_text(name), b" data=", as_text(data)];
                self.text.extend_from_slice(&parts.concat());
                put!(self, " len={}", data.len());
            }
            Command::RemoveXattr { name, .. } => {
                self.text.extend_from_slice(&[b"name=", as_text(name)].concat());
            }
            Command::Write { offset, data, .. } => {
                put!(self, "offset={offset} len={}", data.len());
            }
            Command::UpdateExtent { offset, len, .. } => {
                put!(self, "offset={offset} len={len}");
            }
            Command::Clone { offset, len, clone_path, clone_offset, .. } => {
                put!(self, "offset={offset} len={len} from=");
                self.text.extend_from_slice(&join(&self.subvolume, clone_path));
                put!(self, " clone_offset={clone_offset}");
            }
            Command::Truncate { size, .. } => {
                put!(self, "size={size}");
            }
            Command::Chmod { mode, .. } => {
                put!(self, "mode={mode:o}");
            }
            Command::Chown { uid, gid, .. } => {
                put!(self, "gid={gid} uid={uid}");
            }
            Command::Utimes { atime, mtime, ctime, .. } => {
                for (name, time) in [("atime=", atime), (" mtime=", mtime), (" ctime=", ctime)] {
                    put!(self, "{name}{}", text_of(time, self.zone));
                }
            }
            Command::Fallocate { mode, offset, len, .. } => {
                put!(self, "mode={} offset={offset} len={len}", mode as i32);
            }
            Command::Fileattr { attributes, .. } => {
                // A decimal number after 0x, as btrfs-progs prints it.
                put!(self, "fileattr=0x{attributes}");
            }
            Command::EncodedWrite {
                offset,
                unencoded_file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                encryption,
                data,
                ..
            } => {
                put!(self, "offset={offset} len={}, ", data.len());
                put!(self, "unencoded_file_len={unencoded_file_len}, ");
                put!(self, "unencoded_len={unencoded_len}, unencoded_offset={unencoded_offset}, ");
                let [compression, encryption] =
                    [compression, encryption].map(Option::unwrap_or_default);
                put!(self, "compression={compression}, encryption={encryption}");
            }
            _ => {}
        }
    }

    fn escaped(&mut self, path: &[u8]) {
        for &byte in as_text(path) {
            match byte {
                0x07 => self.text.extend_from_slice(b"\\a"),
                0x08 => self.text.extend_from_slice(b"\\b"),
                0x1b => self.text.extend_from_slice(b"\\e"),
                0x0c => self.text.extend_from_slice(b"\\f"),
                b'\n' => self.text.extend_from_slice(b"\\n"),
                b'\r' => self.text.extend_from_slice(b"\\r"),
                b'\t' => self.text.extend_from_slice(b"\\t"),
                0x0b => self.text.extend_from_slice(b"\\v"),
                b' ' => self.text.extend_from_slice(b"\\ "),
                b'\\' => self.text.extend_from_slice(b"\\\\"),
                0x21..=0x7e => self.text.push(byte),
                _ => {
                    put!(self, "\\{byte:03o}");
                }
            }
        }
    }
}

/// Whether there is text after the path.
fn has_details(command: &Command<'_>) -> bool {
    !matches!(
        command,
        Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Unlink { .. }
            | Command::Rmdir { .. }
            | Command::EnableVerity { .. }
    )
}

/// The text that C would print: all before the first zero byte.
fn as_text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

/// Both paths joined with a slash, each without a slash at its end.
fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let strip = |path| <[u8]>::strip_suffix(path, b"/").unwrap_or(path);
    [strip(as_text(folder)), b"/", strip(as_text(path))].concat()
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
