//! A stream that is told of, command by command, on its way to the receiver.

use std::io::{self, Read};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use larder::Uuid;
use larder_stream::{Command, Detail, Reader, StreamError, StreamProblem, describe};

use crate::message::on_one_line;

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
    let Some(description) = describe(command).filter(|it| it.detail <= detail) else { return };
    if let Some(line) = description.told(command.path().unwrap_or_default()) {
        say(&line);
    }
}

fn say(line: &str) {
    eprintln!("{}", on_one_line(line));
}
