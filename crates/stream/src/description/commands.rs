//! The description of each command.

use super::Description;
use super::Detail::{Data, Everything};
use super::Field::{Bytes, Number, Path, Time, Uuid};
use crate::wire::Command;

/// The description of a command; `None` for the end of a stream.
pub fn describe<'a>(command: &Command<'a>) -> Option<Description<'a>> {
    Some(match *command {
        Command::Subvol { uuid, ctransid, .. } => Description {
            fields: vec![("uuid", Uuid(uuid)), ("ctransid", Number(ctransid))],
            dump: "uuid={uuid} transid={ctransid}",
            told: "receiving subvol {path} uuid={uuid}, stransid={ctransid}",
            detail: Data,
        },
        Command::Snapshot { uuid, ctransid, clone_uuid, clone_ctransid, .. } => Description {
            fields: vec![
                ("uuid", Uuid(uuid)),
                ("ctransid", Number(ctransid)),
                ("parent_uuid", Uuid(clone_uuid)),
                ("parent_ctransid", Number(clone_ctransid)),
            ],
            dump: "uuid={uuid} transid={ctransid} \
                   parent_uuid={parent_uuid} parent_transid={parent_ctransid}",
            told: "receiving snapshot {path} uuid={uuid}, ctransid={ctransid} \
                   parent_uuid={parent_uuid}, parent_ctransid={parent_ctransid}",
            detail: Data,
        },
        Command::Mkfile { .. } => plain("mkfile {path}"),
        Command::Mkdir { .. } => plain("mkdir {path}"),
        Command::Mknod { rdev, mode, .. } => Description {
            fields: vec![("mode", Number(mode)), ("dev", Number(rdev))],
            dump: "mode={mode:o} dev=0x{dev:x}",
            told: "mknod {path} mode={mode}, dev={dev}",
            detail: Everything,
        },
        Command::Mkfifo { .. } => plain("mkfifo {path}"),
        Command::Mksock { .. } => plain("mksock {path}"),
        Command::Symlink { target, .. } => Description {
            fields: vec![("dest", Bytes(target))],
            dump: "dest={dest}",
            told: "symlink {path} -> {dest}",
            detail: Everything,
        },
        Command::Rename { to, .. } => Description {
            fields: vec![("dest", Path(to))],
            dump: "dest={dest}",
            told: "rename {path} -> {dest}",
            detail: Everything,
        },
        Command::Link { existing, .. } => Description {
            fields: vec![("dest", Bytes(existing))],
            dump: "dest={dest}",
            told: "link {path} -> {dest}",
            detail: Everything,
        },
        Command::Unlink { .. } => plain("unlink {path}"),
        Command::Rmdir { .. } => plain("rmdir {path}"),
        Command::SetXattr { name, data, .. } => Description {
            fields: vec![
                ("name", Bytes(name)),
                ("value", Bytes(data)),
                ("length", Number(data.len() as u64)),
            ],
            dump: "name={name:r} data={value:r} len={length}",
            told: "set_xattr {path} - name={name} data_len={length} data={value}",
            detail: Everything,
        },
        Command::RemoveXattr { name, .. } => Description {
            fields: vec![("name", Bytes(name))],
            dump: "name={name:r}",
            told: "remove_xattr {path} - name={name}",
            detail: Everything,
        },
        Command::Write { offset, data, .. } => Description {
            fields: vec![("offset", Number(offset)), ("length", Number(data.len() as u64))],
            dump: "offset={offset} len={length}",
            told: "write {path} - offset={offset} length={length}",
            detail: Data,
        },
        Command::UpdateExtent { offset, len, .. } => Description {
            fields: vec![("offset", Number(offset)), ("length", Number(len))],
            dump: "offset={offset} len={length}",
            told: "update_extent {path}: offset={offset}, len={length}",
            detail: Data,
        },
        Command::Clone {
            offset,
            len,
            clone_uuid,
            clone_ctransid,
            clone_path,
            clone_offset,
            ..
        } => Description {
            fields: vec![
                ("offset", Number(offset)),
                ("length", Number(len)),
                ("from", Path(clone_path)),
                ("clone_uuid", Uuid(clone_uuid)),
                ("clone_ctransid", Number(clone_ctransid)),
                ("clone_offset", Number(clone_offset)),
            ],
            dump: "offset={offset} len={length} from={from:r} clone_offset={clone_offset}",
            told: "clone {path} - source={from} source offset={clone_offset} \
                   offset={offset} length={length}",
            detail: Data,
        },
        Command::Truncate { size, .. } => Description {
            fields: vec![("size", Number(size))],
            dump: "size={size}",
            told: "truncate {path} size={size}",
            detail: Everything,
        },
        Command::Chmod { mode, .. } => Description {
            fields: vec![("mode", Number(mode))],
            dump: "mode={mode:o}",
            told: "chmod {path} - mode=0{mode:o}",
            detail: Everything,
        },
        Command::Chown { uid, gid, .. } => Description {
            fields: vec![("uid", Number(uid)), ("gid", Number(gid))],
            dump: "gid={gid} uid={uid}",
            told: "chown {path} - uid={uid}, gid={gid}",
            detail: Everything,
        },
        Command::Utimes { atime, mtime, ctime, .. } => Description {
            fields: vec![("atime", Time(atime)), ("mtime", Time(mtime)), ("ctime", Time(ctime))],
            dump: "atime={atime} mtime={mtime} ctime={ctime}",
            told: "utimes {path}",
            detail: Everything,
        },
        Command::Fallocate { mode, offset, len, .. } => Description {
            fields: vec![
                ("mode", Number(mode.into())),
                ("offset", Number(offset)),
                ("length", Number(len)),
            ],
            dump: "mode={mode:i} offset={offset} len={length}",
            told: "fallocate {path} - offset={offset}, len={length}, mode={mode}",
            detail: Everything,
        },
        Command::Fileattr { attributes, .. } => Description {
            fields: vec![("fileattr", Number(attributes))],
            // A decimal number after 0x, as btrfs-progs prints it.
            dump: "fileattr=0x{fileattr}",
            told: "",
            detail: Everything,
        },
        Command::EncodedWrite {
            offset,
            unencoded_file_len,
            unencoded_len,
            unencoded_offset,
            compression,
            encryption,
            data,
            ..
        } => Description {
            fields: vec![
                ("offset", Number(offset)),
                ("length", Number(data.len() as u64)),
                ("unencoded_file_len", Number(unencoded_file_len)),
                ("unencoded_len", Number(unencoded_len)),
                ("unencoded_offset", Number(unencoded_offset)),
                ("compression", Number(compression.unwrap_or(0).into())),
                ("encryption", Number(encryption.unwrap_or(0).into())),
            ],
            dump: "offset={offset} len={length}, unencoded_file_len={unencoded_file_len}, \
                   unencoded_len={unencoded_len}, unencoded_offset={unencoded_offset}, \
                   compression={compression}, encryption={encryption}",
            told: "encoded_write {path} - offset={offset}, len={length}, \
                   unencoded_offset={unencoded_offset}, unencoded_file_len={unencoded_file_len}, \
                   unencoded_len={unencoded_len}, compression={compression}, \
                   encryption={encryption}",
            detail: Everything,
        },
        Command::EnableVerity { algorithm, block_size, salt, signature, .. } => Description {
            fields: vec![
                ("algorithm", Number(algorithm.into())),
                ("block_size", Number(block_size.into())),
                ("salt_len", Number(salt.len() as u64)),
                ("sig_len", Number(signature.len() as u64)),
            ],
            dump: "",
            told: "",
            detail: Everything,
        },
        Command::End => return None,
    })
}

/// A command that has nothing but its path.
fn plain<'a>(told: &'static str) -> Description<'a> {
    Description { fields: Vec::new(), dump: "", told, detail: Everything }
}

#[cfg(test)]
mod tests {
    use larder_format::Uuid;

    use super::*;
    use crate::description::form::named;
    use crate::wire::Timestamp;

    /// One of each, except the end.
    fn commands() -> [Command<'static>; 25] {
        let (path, name, data) = (b"a".as_slice(), b"b".as_slice(), b"c".as_slice());
        let (uuid, time) = (Uuid::nil(), Timestamp { seconds: 1, nanoseconds: 2 });
        [
            Command::Subvol { path, uuid, ctransid: 1 },
            Command::Snapshot { path, uuid, ctransid: 1, clone_uuid: uuid, clone_ctransid: 2 },
            Command::Mkfile { path, ino: 1 },
            Command::Mkdir { path, ino: 1 },
            Command::Mknod { path, ino: 1, rdev: 2, mode: 3 },
            Command::Mkfifo { path, ino: 1, rdev: None, mode: None },
            Command::Mksock { path, ino: 1, rdev: None, mode: None },
            Command::Symlink { path, ino: 1, target: name },
            Command::Rename { path, to: name },
            Command::Link { path, existing: name },
            Command::Unlink { path },
            Command::Rmdir { path },
            Command::SetXattr { path, name, data },
            Command::RemoveXattr { path, name },
            Command::Write { path, offset: 1, data },
            Command::Clone {
                path,
                offset: 1,
                len: 2,
                clone_uuid: uuid,
                clone_ctransid: 3,
                clone_path: name,
                clone_offset: 4,
            },
            Command::Truncate { path, size: 1 },
            Command::Chmod { path, mode: 1 },
            Command::Chown { path, uid: 1, gid: 2 },
            Command::Utimes { path, atime: time, mtime: time, ctime: time, otime: None },
            Command::UpdateExtent { path, offset: 1, len: 2 },
            Command::Fallocate { path, mode: 1, offset: 2, len: 3 },
            Command::Fileattr { path, attributes: 1 },
            Command::EncodedWrite {
                path,
                offset: 1,
                unencoded_file_len: 2,
                unencoded_len: 3,
                unencoded_offset: 4,
                compression: None,
                encryption: None,
                data,
            },
            Command::EnableVerity {
                path,
                algorithm: 1,
                block_size: 2,
                salt: name,
                signature: data,
            },
        ]
    }

    #[test]
    fn forms_have_places_for_known_fields_only() {
        for command in commands() {
            let description = describe(&command).expect("it is not the end");
            let is_known = |name: &str| description.fields.iter().any(|(it, _)| *it == name);
            let name = command.name();
            assert!(named(description.dump).into_iter().all(is_known), "{name}");
            let is_told = |it: &str| it == "path" || is_known(it);
            assert!(named(description.told).into_iter().all(is_told), "{name}");
        }
        assert!(describe(&Command::End).is_none());
    }

    #[test]
    fn a_receiver_tells_of_commands_in_the_words_of_btrfs() {
        let told = commands().map(|it| describe(&it).and_then(|known| known.told(b"a")));
        let expected = [
            "receiving subvol a uuid=00000000-0000-0000-0000-000000000000, stransid=1",
            "receiving snapshot a uuid=00000000-0000-0000-0000-000000000000, ctransid=1 \
             parent_uuid=00000000-0000-0000-0000-000000000000, parent_ctransid=2",
            "mkfile a",
            "mkdir a",
            "mknod a mode=3, dev=2",
            "mkfifo a",
            "mksock a",
            "symlink a -> b",
            "rename a -> b",
            "link a -> b",
            "unlink a",
            "rmdir a",
            "set_xattr a - name=b data_len=1 data=c",
            "remove_xattr a - name=b",
            "write a - offset=1 length=1",
            "clone a - source=b source offset=4 offset=1 length=2",
            "truncate a size=1",
            "chmod a - mode=01",
            "chown a - uid=1, gid=2",
            "utimes a",
            "update_extent a: offset=1, len=2",
            "fallocate a - offset=2, len=3, mode=1",
            "",
            "encoded_write a - offset=1, len=1, unencoded_offset=4, unencoded_file_len=2, \
             unencoded_len=3, compression=0, encryption=0",
            "",
        ];
        assert_eq!(told.map(Option::unwrap_or_default), expected);
    }
}
