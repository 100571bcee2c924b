//! A stream as JSON, an object for each command, with the names of btrfs-progs.

use std::io::{Read, Write};

use larder_stream::{Command, Reader, Timestamp};
use serde_json::{Value, json};

use crate::print::{JsonList, Name, Object, stream_time};

/// Writes the streams in `input` as a list of operations, each as it is read.
pub fn dump(input: impl Read, mut out: impl Write) -> anyhow::Result<()> {
    let mut reader = Reader::new(input);
    let mut list = JsonList::new("operations");
    let mut subvolume = Vec::new();
    while let Some(command) = reader.next()? {
        let Some(path) = command.path() else { continue };
        let path = if let Command::Subvol { .. } | Command::Snapshot { .. } = command {
            subvolume = join(b".", path);
            subvolume.clone()
        } else {
            join(&subvolume, path)
        };
        let mut fields =
            vec![("op", json!(command.name())), ("path", json!(Name::of_bytes(&path)))];
        fields.extend(details(&command, &subvolume));
        list.push(&mut out, &Object(&fields))?;
    }
    list.end_with(&mut out, &[])?;
    Ok(out.flush()?)
}

/// What a command has besides its path.
fn details(command: &Command<'_>, subvolume: &[u8]) -> Vec<(&'static str, Value)> {
    let name = |bytes: &[u8]| json!(Name::of_bytes(bytes));
    let time = |time: Timestamp| json!(stream_time(time.seconds));
    match *command {
        Command::Subvol { uuid, ctransid, .. } => {
            vec![("uuid", json!(uuid.to_string())), ("ctransid", json!(ctransid))]
        }
        Command::Snapshot { uuid, ctransid, clone_uuid, clone_ctransid, .. } => vec![
            ("uuid", json!(uuid.to_string())),
            ("ctransid", json!(ctransid)),
            ("parent_uuid", json!(clone_uuid.to_string())),
            ("parent_ctransid", json!(clone_ctransid)),
        ],
        Command::Mknod { rdev, mode, .. } => vec![("mode", json!(mode)), ("dev", json!(rdev))],
        Command::Symlink { target: path, .. } | Command::Link { existing: path, .. } => {
            vec![("dest", name(path))]
        }
        Command::Rename { to, .. } => vec![("dest", name(&join(subvolume, to)))],
        Command::SetXattr { name: attribute, data, .. } => {
            vec![("name", name(attribute)), ("value", name(data)), ("length", json!(data.len()))]
        }
        Command::RemoveXattr { name: attribute, .. } => vec![("name", name(attribute))],
        Command::Write { offset, data, .. } => {
            vec![("offset", json!(offset)), ("length", json!(data.len()))]
        }
        Command::UpdateExtent { offset, len, .. } => {
            vec![("offset", json!(offset)), ("length", json!(len))]
        }
        Command::Clone {
            offset,
            len,
            clone_uuid,
            clone_ctransid,
            clone_path,
            clone_offset,
            ..
        } => vec![
            ("offset", json!(offset)),
            ("length", json!(len)),
            ("from", name(&join(subvolume, clone_path))),
            ("clone_uuid", json!(clone_uuid.to_string())),
            ("clone_ctransid", json!(clone_ctransid)),
            ("clone_offset", json!(clone_offset)),
        ],
        Command::Truncate { size, .. } => vec![("size", json!(size))],
        Command::Chmod { mode, .. } => vec![("mode", json!(mode))],
        Command::Chown { uid, gid, .. } => vec![("uid", json!(uid)), ("gid", json!(gid))],
        Command::Utimes { atime, mtime, ctime, .. } => {
            vec![("atime", time(atime)), ("mtime", time(mtime)), ("ctime", time(ctime))]
        }
        Command::Fallocate { mode, offset, len, .. } => {
            vec![("mode", json!(mode)), ("offset", json!(offset)), ("length", json!(len))]
        }
        Command::Fileattr { attributes, .. } => vec![("fileattr", json!(attributes))],
        Command::EncodedWrite {
            offset,
            unencoded_file_len,
            unencoded_len,
            unencoded_offset,
            compression,
            encryption,
            data,
            ..
        } => vec![
            ("offset", json!(offset)),
            ("length", json!(data.len())),
            ("unencoded_file_len", json!(unencoded_file_len)),
            ("unencoded_len", json!(unencoded_len)),
            ("unencoded_offset", json!(unencoded_offset)),
            ("compression", json!(compression.unwrap_or(0))),
            ("encryption", json!(encryption.unwrap_or(0))),
        ],
        Command::EnableVerity { algorithm, block_size, salt, signature, .. } => vec![
            ("algorithm", json!(algorithm)),
            ("block_size", json!(block_size)),
            ("salt_len", json!(salt.len())),
            ("sig_len", json!(signature.len())),
        ],
        Command::Mkfile { .. }
        | Command::Mkdir { .. }
        | Command::Mkfifo { .. }
        | Command::Mksock { .. }
        | Command::Unlink { .. }
        | Command::Rmdir { .. }
        | Command::End => Vec::new(),
    }
}

/// Both paths joined with a slash, each without a slash at its end.
fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let strip = |path| <[u8]>::strip_suffix(path, b"/").unwrap_or(path);
    [strip(folder), b"/", strip(path)].concat()
}
