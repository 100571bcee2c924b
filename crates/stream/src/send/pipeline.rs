//! From walking to writing, over threads, in a fixed order.
//!
//! One thread walks and encodes; workers read, verify and encode file data; the caller's thread
//! writes.
//!
//! # Invariants
//! - The output is in the order of the walk, whatever the number of workers.
//! - At most [`PIECES`] pieces wait, none much longer than [`PIECE_BYTES`].
//! - A thread that fails closes its channels, and all others stop.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use parking_lot::Mutex;

use super::SendError;
use super::data::ReadJob;
use crate::wire::{Command, Version, encode};

/// The most pieces that wait to be written.
const PIECES: usize = 16;
/// Length of the pieces of commands.
const PIECE_BYTES: usize = 256 << 10;
/// Space for the headers of a few commands and their paths.
const SPARE_BYTES: usize = 4 << 10;

type Encoded = Result<Vec<u8>, SendError>;

/// A part of the stream.
enum Piece {
    Ready(Vec<u8>),
    Later(Receiver<Encoded>),
}

/// A range of a file, and the channel for its commands.
struct Job {
    read: ReadJob,
    done: SyncSender<Encoded>,
}

/// The output of the walk.
pub(super) struct Output {
    version: Version,
    buffer: Vec<u8>,
    pieces: SyncSender<Piece>,
    jobs: SyncSender<Job>,
}

impl Output {
    /// Adds a command.
    pub(super) fn put(&mut self, command: &Command<'_>) -> Result<(), SendError> {
        encode(command, self.version, &mut self.buffer)?;
        if self.buffer.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds bytes that are not a command.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Adds the commands that a worker makes from `read`.
    pub(super) fn put_data(&mut self, read: ReadJob) -> Result<(), SendError> {
        self.flush()?;
        let (done, later) = sync_channel(1);
        self.jobs.send(Job { read, done }).map_err(|_| SendError::Stopped)?;
        self.pieces.send(Piece::Later(later)).map_err(|_| SendError::Stopped)
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    fn flush(&mut self) -> Result<(), SendError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.buffer);
        self.pieces.send(Piece::Ready(piece)).map_err(|_| SendError::Stopped)
    }
}

/// Runs `walk` in its own thread with `workers` threads that read, and writes the result. Returns
/// the number of bytes written, and the result of `walk`.
pub(super) fn run<T: Send>(
    version: Version,
    workers: usize,
    output: &mut dyn Write,
    walk: impl FnOnce(&mut Output) -> Result<T, SendError> + Send,
) -> Result<(u64, T), SendError> {
    let (pieces, waiting) = sync_channel(PIECES);
    let (jobs, to_do) = sync_channel::<Job>(PIECES);
    let to_do = Mutex::new(to_do);
    thread::scope(|scope| {
        let to_do = &to_do;
        let walker = scope.spawn(move || {
            let mut output = Output { version, buffer: Vec::new(), pieces, jobs };
            let result = walk(&mut output)?;
            output.flush()?;
            Ok(result)
        });
        for _ in 0..workers.max(1) {
            scope.spawn(move || work(to_do, version));
        }
        let written = write(waiting, output);
        let walked = walker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (written, walked) {
            // The walker stopped because the writer did.
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(bytes), Ok(result)) => Ok((bytes, result)),
        }
    })
}

/// Does jobs until there are no more.
fn work(to_do: &Mutex<Receiver<Job>>, version: Version) {
    let mut data = Vec::new();
    loop {
        // The lock covers taking a job, not doing it.
        let job = to_do.lock().recv();
        let Ok(Job { read, done }) = job else { return };
        let mut encoded = Vec::with_capacity(read.len_bytes as usize + SPARE_BYTES);
        let result = read.encode(version, &mut data, &mut encoded).map(|()| encoded);
        // The writer may have failed and gone.
        let _ = done.send(result);
    }
}

/// Writes pieces until there are no more. Dropping `waiting` stops the walker.
fn write(waiting: Receiver<Piece>, output: &mut dyn Write) -> Result<u64, SendError> {
    let mut bytes = 0;
    for piece in waiting {
        let piece = match piece {
            Piece::Ready(piece) => piece,
            Piece::Later(later) => later.recv().map_err(|_| SendError::Stopped)??,
        };
        output.write_all(&piece).map_err(SendError::Output)?;
        bytes += piece.len() as u64;
    }
    output.flush().map_err(SendError::Output)?;
    Ok(bytes)
}
