//! Reading one device's part of a chunk.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::{Logical, Physical};
use larder_transaction::extent::{FoundExtent, extents};

use crate::batch::{Batch, Content, Piece};
use crate::checksums::ChecksumWalk;
use crate::device::{Part, Scrub, Stopped};
use crate::state::State;
use crate::verifier::{Lost, Verifier};

/// Batches on their way from the thread that reads to the one that verifies.
const BATCHES: usize = 2;

/// Scrubs a part from an address of the device on. Returns the address that it reached, which is
/// the end unless the state was lost.
pub(crate) fn scrub_part(
    scrub: &Scrub<'_>,
    state: &State,
    part: &Part,
    from: u64,
) -> Result<u64, (u64, Stopped)> {
    let (sender, batches) = sync_channel::<Batch>(BATCHES);
    let (used, empty) = channel();
    let is_lost = AtomicBool::new(false);
    let verifier = Verifier { scrub, state, part };
    let (walked, lost) = thread::scope(|scope| {
        let verifying = thread::Builder::new().name("larder-scrub".into());
        let (verifier, is_lost) = (&verifier, &is_lost);
        let verify = move || verify_all(verifier, batches, &used, is_lost);
        let verifying = match verifying.spawn_scoped(scope, verify) {
            Ok(verifying) => verifying,
            Err(error) => return (Err(Stopped::NoThread(error)), None),
        };
        let walk = Walk {
            scrub,
            part,
            from,
            batch: Batch::default(),
            batches: sender,
            empty,
            checksums: ChecksumWalk::new(
                &state.checksums,
                scrub.target.volume().checksum_type(),
                u64::from(scrub.target.volume().sectorsize()),
            ),
            last_row: None,
            end: part.start(),
            is_lost,
        };
        let walked = walk.run(state);
        (walked, verifying.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let reached = scrub.progress.get().last_physical.clamp(from, part.end());
    match (walked, lost) {
        (Err(stopped @ (Stopped::Cancelled | Stopped::NoThread(_))), _) => Err((reached, stopped)),
        (_, Some(Lost { at })) if !state.is_kept() => Ok(at.max(from)),
        (Err(stopped), _) => Err((reached, stopped)),
        (Ok(end), _) => {
            let whole = (end - part.start()).next_multiple_of(STRIPE_LEN_BYTES);
            let end = (part.start() + whole).min(part.end());
            scrub.progress.change(|counters| {
                if whole > 0 && counters.last_physical > part.start() {
                    counters.last_physical = counters.last_physical.max(end);
                }
            });
            Ok(part.end())
        }
    }
}

/// Verifies batches until there are no more. Returns where the state was lost, if it was.
fn verify_all(
    verifier: &Verifier<'_>,
    batches: Receiver<Batch>,
    used: &Sender<Batch>,
    is_lost: &AtomicBool,
) -> Option<Lost> {
    let mut lost = None;
    for mut batch in batches {
        if lost.is_none() {
            lost = verifier.verify(&mut batch).err();
            is_lost.store(lost.is_some(), Relaxed);
        }
        batch.clear();
        let _ = used.send(batch);
    }
    lost
}

/// The walk along the extents of a part.
struct Walk<'w> {
    scrub: &'w Scrub<'w>,
    part: &'w Part,
    from: u64,
    batch: Batch,
    batches: SyncSender<Batch>,
    empty: Receiver<Batch>,
    checksums: ChecksumWalk,
    /// The last row whose parity was added.
    last_row: Option<u64>,
    /// The end of the last piece.
    end: u64,
    is_lost: &'w AtomicBool,
}

impl Walk<'_> {
    /// Reads all of it. Returns the address after the last piece.
    fn run(mut self, state: &State) -> Result<u64, Stopped> {
        let (chunk, volume) = (&self.part.chunk, self.scrub.target.volume());
        let range = chunk.logical().0..chunk.end().0;
        for extent in extents(&state.extents, volume.nodesize(), range) {
            self.add(&extent?)?;
            if self.is_lost.load(Relaxed) {
                return Ok(self.end);
            }
        }
        self.flush()?;
        Ok(self.end)
    }

    /// Adds what this device has of an extent.
    fn add(&mut self, extent: &FoundExtent) -> Result<(), Stopped> {
        let part = self.part;
        let (start, len_bytes) =
            (Logical(extent.range.start), extent.range.end - extent.range.start);
        for segment in part.chunk.segments(start, len_bytes) {
            self.add_parity(segment.row)?;
            let address = part.chunk.addresses(&segment).find(|at| at.stripe == part.stripe);
            let Some(address) = address else { continue };
            let (logical, physical) = (segment.logical.0, address.physical.0);
            if physical + segment.len_bytes <= self.from || physical >= self.scrub.end {
                continue;
            }
            if extent.is_tree_block {
                // One that lies on two devices is that of neither.
                if segment.len_bytes == len_bytes {
                    let content = Content::Block { generation: extent.generation };
                    self.make_room(physical, len_bytes)?;
                    self.batch.tree_extents += 1;
                    self.batch.pieces.push(Piece { logical, physical, len_bytes, content });
                    self.end = physical + len_bytes;
                }
                continue;
            }
            let skipped = self.from.saturating_sub(physical);
            let range = logical + skipped..logical + segment.len_bytes;
            self.add_data(range, physical + skipped)?;
        }
        Ok(())
    }

    /// Adds data.
    fn add_data(&mut self, range: Range<u64>, physical: u64) -> Result<(), Stopped> {
        let offset = |logical: u64| logical - self.part.chunk.logical().0;
        let touched =
            (offset(range.end) - 1) / STRIPE_LEN_BYTES - offset(range.start) / STRIPE_LEN_BYTES;
        let mut extents = touched + 1;
        let mut parts = Vec::new();
        let mut sums = Vec::new();
        self.checksums.parts(range.clone(), |part, own| {
            let before = sums.len();
            sums.extend_from_slice(own.unwrap_or_default());
            parts.push((part, own.map(|_| before)));
        })?;
        let volume = self.scrub.target.volume();
        let (sectorsize, sum_bytes) =
            (u64::from(volume.sectorsize()), volume.checksum_type().size());
        for (part, sums_at) in parts {
            let mut at = part.start;
            while at < part.end {
                let here = physical + (at - range.start);
                if self.batch.room_at(here) < sectorsize {
                    self.flush()?;
                }
                let room = self.batch.room_at(here) / sectorsize * sectorsize;
                let len_bytes = room.min(part.end - at);
                let content = match sums_at {
                    None => Content::Plain,
                    Some(before) => {
                        let sum = |address: u64| {
                            before + ((address - part.start) / sectorsize) as usize * sum_bytes
                        };
                        let first = self.batch.sums.len();
                        let own = &sums[sum(at)..sum(at + len_bytes)];
                        self.batch.sums.extend_from_slice(own);
                        Content::Summed(first..self.batch.sums.len())
                    }
                };
                self.batch.data_extents += std::mem::take(&mut extents);
                self.batch.pieces.push(Piece { logical: at, physical: here, len_bytes, content });
                at += len_bytes;
                self.end = here + len_bytes;
            }
        }
        Ok(())
    }

    /// Adds the parity of a row, if it lies on this device and was not added before.
    fn add_parity(&mut self, row: u64) -> Result<(), Stopped> {
        let chunk = &self.part.chunk;
        if !chunk.has_parity() || self.last_row == Some(row) {
            return Ok(());
        }
        self.last_row = Some(row);
        let data = chunk.data_stripes();
        for parity in 0..chunk.stripes().len() - data {
            let address = chunk.column_address(row, data + parity, 0);
            let physical = address.physical.0;
            let is_here = address.stripe == self.part.stripe && physical >= self.from;
            if is_here && physical < self.scrub.end {
                self.make_room(physical, STRIPE_LEN_BYTES)?;
                self.batch.pieces.push(Piece {
                    logical: chunk.logical().0 + row * chunk.row_bytes(),
                    physical,
                    len_bytes: STRIPE_LEN_BYTES,
                    content: Content::Parity(parity),
                });
                self.end = physical + STRIPE_LEN_BYTES;
            }
        }
        Ok(())
    }

    /// Begins another batch, if this one has no room for a whole piece.
    fn make_room(&mut self, physical: u64, len_bytes: u64) -> Result<(), Stopped> {
        if self.batch.room_at(physical) < len_bytes { self.flush() } else { Ok(()) }
    }

    /// Reads the batch, and gives it to the thread that verifies.
    fn flush(&mut self) -> Result<(), Stopped> {
        if self.batch.pieces.is_empty() {
            return Ok(());
        }
        let len_bytes = self.batch.end() - self.batch.start();
        self.scrub.job.step(len_bytes)?;
        let mut batch =
            std::mem::replace(&mut self.batch, self.empty.try_recv().unwrap_or_default());
        batch.bytes.resize(len_bytes as usize, 0);
        let (volume, at) = (self.scrub.target.volume(), Physical(batch.start()));
        batch.problem = volume.read_member(self.scrub.device, at, &mut batch.bytes).err();
        // The other thread takes batches until there are no more.
        let _ = self.batches.send(batch);
        Ok(())
    }
}
