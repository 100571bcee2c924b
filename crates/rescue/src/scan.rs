//! Reading devices from start to end, for tree blocks.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use larder_format::superblock::DEVICE_RESERVED_BYTES;
use larder_format::tree_check::Context;
use larder_format::{BlockGroupFlags, Logical};
use larder_parallel::map_in_stretches;
use larder_volume::Chunk;
use larder_volume::chunk::Content;

use crate::RescueError;
use crate::blocks::Block;
use crate::evidence::{Evidence, Member};
use crate::progress::Tracker;

/// Bytes that a thread reads at a time.
const WINDOW_BYTES: u64 = 2 << 20;
/// Bytes that are read by themselves where a window cannot be read.
const PIECE_BYTES: usize = 4096;

/// A range that a device could not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Name of the device.
    pub device: String,
    /// Its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// A part of a device where tree blocks may lie.
struct Part {
    range: Range<u64>,
    /// The chunk that lies there, and which of its stripes; `None` if the chunks are unknown.
    stripe: Option<(Arc<Chunk>, usize)>,
}

/// What was found on a device.
type OnDevice = (Vec<Block>, Vec<Unreadable>);

/// Reads all devices, each in a thread of its own, in the order of addresses.
pub(crate) fn scan(evidence: &Evidence, tracker: &Tracker<'_>) -> Result<OnDevice, RescueError> {
    let parts: Vec<Vec<Part>> = evidence.members.iter().map(|it| parts(evidence, it)).collect();
    let bytes = |part: &Part| part.range.end - part.range.start;
    tracker.expect(parts.iter().flatten().map(bytes).sum());
    let results: Vec<Result<OnDevice, RescueError>> = thread::scope(|scope| {
        let scans = parts.iter().enumerate().map(|(index, parts)| {
            let mut scan = DeviceScan::new(evidence, index, tracker);
            scope.spawn(move || scan.run(parts).map(|()| (scan.found, scan.unreadable)))
        });
        let scans: Vec<_> = scans.collect();
        let joined = scans.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for result in results {
        let (blocks, ranges) = result?;
        found.extend(blocks);
        unreadable.extend(ranges);
    }
    Ok((found, unreadable))
}

/// Where to look on a device, in order of addresses.
fn parts(evidence: &Evidence, member: &Member) -> Vec<Part> {
    let len_bytes = member.device.len_bytes();
    let Ok(volume) = &evidence.volume else {
        let range = DEVICE_RESERVED_BYTES.min(len_bytes)..len_bytes;
        return vec![Part { range, stripe: None }];
    };
    let kinds = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
    let mut parts = Vec::new();
    for chunk in volume.chunks().iter().filter(|chunk| chunk.flags().intersects(kinds)) {
        for (index, stripe) in chunk.stripes().iter().enumerate() {
            if stripe.devid == member.devid {
                let start = stripe.physical.0.min(len_bytes);
                let end = (stripe.physical.0 + chunk.bytes_per_stripe()).min(len_bytes);
                parts.push(Part { range: start..end, stripe: Some((chunk.clone(), index)) });
            }
        }
    }
    parts.sort_by_key(|part| part.range.start);
    parts
}

struct DeviceScan<'a> {
    evidence: &'a Evidence,
    index: usize,
    tracker: &'a Tracker<'a>,
    context: Context,
    found: Vec<Block>,
    unreadable: Vec<Unreadable>,
}

impl<'a> DeviceScan<'a> {
    fn new(evidence: &'a Evidence, index: usize, tracker: &'a Tracker<'a>) -> Self {
        let context = Context::new(&evidence.superblock);
        Self { evidence, index, tracker, context, found: Vec::new(), unreadable: Vec::new() }
    }

    fn run(&mut self, parts: &[Part]) -> Result<(), RescueError> {
        // Blocks that begin in a window may end after it.
        let beyond_bytes = (self.evidence.nodesize() - self.evidence.sectorsize()) as u64;
        let mut window = vec![0; (WINDOW_BYTES + beyond_bytes) as usize];
        for part in parts {
            let mut start = part.range.start;
            while start < part.range.end {
                let end = part.range.end.min(start + WINDOW_BYTES);
                let read_end = part.range.end.min(end + beyond_bytes);
                let bytes = &mut window[..(read_end - start) as usize];
                self.read(start, bytes);
                let next_end = part.range.end.min(end + WINDOW_BYTES);
                self.device().readahead(end, next_end - end);
                self.search(part, start, (end - start) as usize, bytes);
                self.tracker.advance(end - start)?;
                start = end;
            }
        }
        Ok(())
    }

    fn device(&self) -> &'a dyn larder_device::Device {
        self.evidence.members[self.index].device.as_ref()
    }

    /// Fills `bytes`, with zeros where the device cannot be read.
    fn read(&mut self, start: u64, bytes: &mut [u8]) {
        if self.device().read_at(bytes, start).is_ok() {
            return;
        }
        for (index, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            let offset = start + (index * PIECE_BYTES) as u64;
            if self.device().read_at(piece, offset).is_err() {
                piece.fill(0);
                self.note_unreadable(offset, piece.len() as u64);
            }
        }
    }

    fn note_unreadable(&mut self, offset: u64, len_bytes: u64) {
        match self.unreadable.last_mut() {
            Some(last) if (last.offset..=last.offset + last.len_bytes).contains(&offset) => {
                let end = (last.offset + last.len_bytes).max(offset + len_bytes);
                last.len_bytes = end - last.offset;
            }
            _ => {
                let device = self.device().name().to_owned();
                self.unreadable.push(Unreadable { device, offset, len_bytes });
            }
        }
    }

    /// Finds the tree blocks that begin in the first `len` bytes of a window.
    fn search(&mut self, part: &Part, start: u64, len: usize, window: &[u8]) {
        let (nodesize, sectorsize) = (self.evidence.nodesize(), self.evidence.sectorsize());
        let may_be = |at: &usize| {
            let bytes = window.get(*at..*at + nodesize);
            bytes.is_some_and(|bytes| self.evidence.may_be_block(bytes))
        };
        let candidates: Vec<usize> = (0..len).step_by(sectorsize).filter(may_be).collect();
        let verify = |at: &usize| {
            let node = self.evidence.block(&window[*at..*at + nodesize])?;
            let physical = start + *at as u64;
            let is_there = part.holds(physical, node.header().bytenr());
            is_there.then(|| Block::of(node, &self.context, self.index as u32, physical))
        };
        self.found.extend(map_in_stretches(&candidates, verify).into_iter().flatten());
    }
}

impl Part {
    /// Whether the block of this address may lie there.
    fn holds(&self, physical: u64, logical: Logical) -> bool {
        self.stripe.as_ref().is_none_or(|(chunk, index)| {
            let offset = physical - chunk.stripes()[*index].physical.0;
            chunk.content_at(*index, offset) == Content::Data(logical)
        })
    }
}
