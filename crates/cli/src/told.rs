//! A stream that is told of, command by command, on its way to the receiver.

use std::io::{self, Read};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use larder::Uuid;
use larder_stream::{Command, Reader, StreamError, StreamProblem};

use crate::message::on_one_line;

/// How much is told of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The subvolumes, and what is written to files.
    Data,
    /// Every command.
    Everything,
}

/// Passes a stream on as it is. Each command is told on standard error, in the words of `btrfs
/// receive -v`, as it passes.
pub struct Told<R> {
    commands: Reader<Copied<R>>,
    /// What was read and has not been passed on.
    read: Arc<Mutex<Vec<u8>>>,
    ready: io::Cursor<Vec<u8>>,
    detail: Detail,
    /// The subvolume that is being received: its uuid and transaction.
    subvolume: Option<(Uuid, u64)>,
    is_stream: bool,
}

/// Keeps a copy of what is read.
struct Copied<R> {
    input: R,
    read: Arc<Mutex<Vec<u8>>>,
}

impl<R: Read> Read for Copied<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.extend_from_slice(&buffer[..len]);
        Ok(len)
    }
}

impl<R: Read> Told<R> {
    pub fn new(input: R, detail: Detail) -> Self {
        let read = Arc::default();
        let commands = Reader::new(Copied { input, read: Arc::clone(&read) });
        let ready = io::Cursor::default();
        Self { commands, read, ready, detail, subvolume: None, is_stream: true }
    }

    /// Reads a command. What is no stream ends the input: the receiver gets enough to say what is
    /// wrong.
    fn read_on(&mut self) -> io::Result<()> {
        if !self.is_stream {
            return Ok(());
        }
        match self.commands.next() {
            Ok(Some(command)) => tell(&command, self.detail, &mut self.subvolume),
            Ok(None) => {}
            Err(StreamError { problem: StreamProblem::Io(error), .. }) => return Err(error),
            Err(_) => self.is_stream = false,
        }
        Ok(())
    }
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_empty =
            |ready: &io::Cursor<Vec<u8>>| ready.position() == ready.get_ref().len() as u64;
        if is_empty(&self.ready) {
            self.read_on()?;
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            self.ready = io::Cursor::new(mem::take(&mut *read));
        }
        self.ready.read(buffer)
    }
}

/// Tells of a command. `subvolume` is the one that is being received.
fn tell(command: &Command<'_>, detail: Detail, subvolume: &mut Option<(Uuid, u64)>) {
    if matches!(command, Command::Subvol { .. } | Command::Snapshot { .. } | Command::End)
        && let Some((uuid, transid)) = subvolume.take()
    {
        say(&format!("BTRFS_IOC_SET_RECEIVED_SUBVOL uuid={uuid}, stransid={transid}"));
    }
    if let Command::Subvol { uuid, ctransid, .. } | Command::Snapshot { uuid, ctransid, .. } =
        command
    {
        *subvolume = Some((*uuid, *ctransid));
    }
    let (needed, line) = line(command);
    if !line.is_empty() && needed <= detail {
        say(&line);
    }
}

fn say(line: &str) {
    eprintln!("{}", on_one_line(line));
}

/// Bytes of a name or a value, up to the first zero.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A command in words, and the detail that it belongs to.
fn line(command: &Command<'_>) -> (Detail, String) {
    let path = |path: &&[u8]| text(path);
    let line = match command {
        Command::Subvol { path: name, uuid, ctransid } => {
            let name = path(name);
            return (
                Detail::Data,
                format!("receiving subvol {name} uuid={uuid}, stransid={ctransid}"),
            );
        }
        Command::Snapshot { path: name, uuid, ctransid, clone_uuid, clone_ctransid } => {
            let name = path(name);
            return (
                Detail::Data,
                format!(
                    "receiving snapshot {name} uuid={uuid}, ctransid={ctransid} \
                     parent_uuid={clone_uuid}, parent_ctransid={clone_ctransid}"
                ),
            );
        }
        Command::Write { path: name, offset, data } => {
            let (name, len) = (path(name), data.len());
            return (Detail::Data, format!("write {name} - offset={offset} length={len}"));
        }
        Command::UpdateExtent { path: name, offset, len } => {
            let name = path(name);
            return (Detail::Data, format!("update_extent {name}: offset={offset}, len={len}"));
        }
        Command::Clone { path: name, offset, len, clone_path, clone_offset, .. } => {
            let (name, source) = (path(name), path(clone_path));
            return (
                Detail::Data,
                format!(
                    "clone {name} - source={source} source offset={clone_offset} \
                     offset={offset} length={len}"
                ),
            );
        }
        Command::Mkfile { path: name, .. } => format!("mkfile {}", path(name)),
        Command::Mkdir { path: name, .. } => format!("mkdir {}", path(name)),
        Command::Mknod { path: name, mode, rdev, .. } => {
            format!("mknod {} mode={mode}, dev={rdev}", path(name))
        }
        Command::Mkfifo { path: name, .. } => format!("mkfifo {}", path(name)),
        Command::Mksock { path: name, .. } => format!("mksock {}", path(name)),
        Command::Symlink { path: name, target, .. } => {
            format!("symlink {} -> {}", path(name), path(target))
        }
        Command::Rename { path: name, to } => format!("rename {} -> {}", path(name), path(to)),
        Command::Link { path: name, existing } => {
            format!("link {} -> {}", path(name), path(existing))
        }
        Command::Unlink { path: name } => format!("unlink {}", path(name)),
        Command::Rmdir { path: name } => format!("rmdir {}", path(name)),
        Command::SetXattr { path: name, name: attribute, data } => {
            let (name, attribute, len) = (path(name), text(attribute), data.len());
            format!("set_xattr {name} - name={attribute} data_len={len} data={}", text(data))
        }
        Command::RemoveXattr { path: name, name: attribute } => {
            format!("remove_xattr {} - name={}", path(name), text(attribute))
        }
        Command::Truncate { path: name, size } => format!("truncate {} size={size}", path(name)),
        Command::Chmod { path: name, mode } => format!("chmod {} - mode=0{mode:o}", path(name)),
        Command::Chown { path: name, uid, gid } => {
            format!("chown {} - uid={uid}, gid={gid}", path(name))
        }
        Command::Utimes { path: name, .. } => format!("utimes {}", path(name)),
        Command::Fallocate { path: name, mode, offset, len } => {
            format!("fallocate {} - offset={offset}, len={len}, mode={mode}", path(name))
        }
        Command::EncodedWrite {
            path: name,
            offset,
            unencoded_file_len,
            unencoded_len,
            unencoded_offset,
            compression,
            encryption,
            data,
        } => {
            let [compression, encryption] =
                [compression, encryption].map(|number| number.unwrap_or_default());
            format!(
                "encoded_write {} - offset={offset}, len={}, unencoded_offset={unencoded_offset}, \
                 unencoded_file_len={unencoded_file_len}, unencoded_len={unencoded_len}, \
                 compression={compression}, encryption={encryption}",
                path(name),
                data.len()
            )
        }
        _ => String::new(),
    };
    (Detail::Everything, line)
}
