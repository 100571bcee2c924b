//! The thread that writes: it computes checksums of tree blocks, then writes to the devices.
//!
//! It does one write after the other, since full stripes of chunks with parity need that. The
//! channel bounds the waiting writes.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use larder_format::checksum::CHECKSUM_SIZE;
use larder_format::{ChecksumType, Logical};
use larder_volume::{Chunk, Volume};

use crate::content::BufferPool;
use crate::{MkfsError, Progress};

/// The most writes that wait, of a megabyte each.
const QUEUE: usize = 8;

/// What moves is copied in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Something to be written.
#[derive(Debug)]
pub(crate) enum Write {
    /// Parts of a buffer, each at its address.
    Data { buffer: Vec<u8>, parts: Vec<(Logical, Range<usize>)> },
    /// Consecutive tree blocks without their checksums.
    Blocks { logical: Logical, bytes: Vec<u8> },
    /// The chunk that starts there has this layout from now on.
    Layout(Chunk),
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Writer<'scope> {
    /// `None` once the thread has failed.
    queue: Option<SyncSender<Write>>,
    thread: Option<ScopedJoinHandle<'scope, Result<(), MkfsError>>>,
}

impl<'scope> Writer<'scope> {
    /// Starts the thread.
    pub(crate) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        volume: &'env Volume,
        buffers: &'env BufferPool,
        progress: Option<&'env Progress>,
    ) -> Self {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = scope.spawn(move || write_all(&receiver, volume, buffers, progress));
        Self { queue: Some(sender), thread: Some(thread) }
    }

    /// Queues a write. An error is that of an earlier write.
    pub(crate) fn send(&mut self, write: Write) -> Result<(), MkfsError> {
        match &self.queue {
            Some(queue) if queue.send(write).is_ok() => Ok(()),
            _ => self.finish(),
        }
    }

    /// Returns once everything is written.
    pub(crate) fn finish(&mut self) -> Result<(), MkfsError> {
        self.queue = None;
        match self.thread.take().map(ScopedJoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

fn write_all(
    queue: &Receiver<Write>,
    volume: &Volume,
    buffers: &BufferPool,
    progress: Option<&Progress>,
) -> Result<(), MkfsError> {
    let mut written_bytes = 0;
    for write in queue {
        match write {
            Write::Data { buffer, parts } => {
                for (logical, part) in parts {
                    written_bytes += part.len() as u64;
                    volume.write(logical, &buffer[part])?;
                }
                buffers.give_back(buffer);
            }
            Write::Blocks { logical, mut bytes } => {
                for block in bytes.chunks_exact_mut(volume.nodesize() as usize) {
                    set_checksum(block, volume.checksum_type());
                }
                volume.write(logical, &bytes)?;
                written_bytes += bytes.len() as u64;
            }
            Write::Layout(chunk) => lay_out(volume, chunk)?,
        }
        if let Some(progress) = progress {
            progress.tell(written_bytes)?;
        }
    }
    Ok(())
}

/// Copies the stripes of a chunk that move down, and gives it the new layout.
fn lay_out(volume: &Volume, chunk: Chunk) -> Result<(), MkfsError> {
    let before = volume.chunk_at(chunk.logical()).expect("it was made before");
    let mut piece = vec![0; PIECE_BYTES as usize];
    for (from, to) in before.stripes().iter().zip(chunk.stripes()) {
        if from.physical == to.physical {
            continue;
        }
        let member = volume.device(to.devid).expect("it was chosen among them");
        let device = member.device().expect("all are there");
        let mut done = 0;
        // What it reads next is never overwritten before: it moves down.
        while done < chunk.bytes_per_stripe() {
            let len = (chunk.bytes_per_stripe() - done).min(PIECE_BYTES);
            let piece = &mut piece[..len as usize];
            device.read_at(piece, from.physical.0 + done)?;
            device.write_at(piece, to.physical.0 + done)?;
            done += len;
        }
    }
    volume.replace_chunk(chunk).expect("it has the addresses that it had, or fewer");
    Ok(())
}

fn set_checksum(block: &mut [u8], checksum_type: ChecksumType) {
    let checksum = checksum_type.compute_block(block);
    block[..CHECKSUM_SIZE].copy_from_slice(&checksum.padded());
}
