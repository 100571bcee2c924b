//! Data against its checksums, every copy of it.

use larder_device::DeviceError;
use larder_format::Logical;
use larder_volume::MappedRange;

use super::ranges::item_range;
use crate::blocks::{Forest, Item, TreeRoot, for_each_item_again};
use crate::context::Context;
use crate::evidence::ChecksumEvidence;
use crate::parallel;
use crate::report::Location;

/// Checksum items that are gathered before threads share them.
const ITEMS_AT_ONCE: usize = 256;

/// Bytes of data that are read at once.
const BYTES_AT_ONCE: u64 = 1 << 20;

/// Data and its checksums.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Logical address of the data.
    pub(crate) start: u64,
    /// One after the other, a sector each.
    pub(crate) checksums: Vec<u8>,
}

impl Piece {
    /// Length of the data in bytes.
    pub(crate) fn len_bytes(&self, context: &Context<'_>) -> u64 {
        (self.checksums.len() / context.csum_type.size()) as u64 * context.sectorsize
    }

    /// The address after the last.
    pub(crate) fn end(&self, context: &Context<'_>) -> u64 {
        self.start + self.len_bytes(context)
    }
}

/// Reads all data that has checksums and reports mismatches. Returns the bytes read. The progress
/// of the phase counts them.
pub(crate) fn check(context: &Context<'_>, forest: &Forest, root: &TreeRoot) -> u64 {
    let mut verified = 0;
    let mut pieces = Vec::with_capacity(ITEMS_AT_ONCE);
    let mut run = |pieces: &mut Vec<Piece>| {
        verified += check_pieces(context, pieces);
        pieces.clear();
    };
    for_each_item_again(context, forest, root, |item: Item<'_>| {
        if let Ok((start, _)) = item_range(context, &item) {
            pieces.push(Piece { start, checksums: item.data.to_vec() });
        }
        if pieces.len() == ITEMS_AT_ONCE {
            run(&mut pieces);
        }
    });
    run(&mut pieces);
    verified
}

/// Reads data and reports mismatches. Returns the bytes read: none once the check is stopped.
pub(crate) fn check_pieces(context: &Context<'_>, pieces: &[Piece]) -> u64 {
    let verified = parallel::map(context.threads, pieces, Vec::new, |buf, piece| {
        if context.progress.is_stopped() {
            return 0;
        }
        let bytes = check_piece(context, piece, buf);
        context.progress.advance(piece.len_bytes(context));
        bytes
    });
    verified.into_iter().sum()
}

/// Checks every copy of a piece and returns the bytes read.
fn check_piece(context: &Context<'_>, piece: &Piece, buf: &mut Vec<u8>) -> u64 {
    let size = context.csum_type.size();
    let sectors_at_once = (BYTES_AT_ONCE / context.sectorsize).max(1) as usize;
    let (mut at, mut verified) = (piece.start, 0);
    for checksums in piece.checksums.chunks(sectors_at_once * size) {
        let len_bytes = (checksums.len() / size) as u64 * context.sectorsize;
        // Checksums outside of all chunks were reported as dangling.
        let ranges = context.volume.map(Logical(at), len_bytes).unwrap_or_default();
        let mut rest = checksums;
        for range in &ranges {
            let sectors = (range.len_bytes / context.sectorsize) as usize;
            let (own, after) = rest.split_at(sectors * size);
            rest = after;
            verified += check_range(context, range, own, buf);
        }
        at += len_bytes;
    }
    verified
}

/// The state of the copies of one sector.
#[derive(Default)]
struct SectorState {
    is_good_somewhere: bool,
    /// A bit for each copy that is bad.
    bad_copies: u64,
    /// The copies of these that could not be read, and why.
    unread: Vec<(usize, DeviceError)>,
}

impl SectorState {
    /// What is wrong with a bad copy.
    fn problem(&self, copy: usize) -> ChecksumEvidence {
        match self.unread.iter().find(|(number, _)| *number == copy) {
            Some((_, error)) => {
                ChecksumEvidence::CopyUnreadable { copy, problem: error.to_string() }
            }
            None => ChecksumEvidence::CopyDiffers { copy },
        }
    }
}

/// Checks every copy of a range that lies in one piece on each device. Returns the bytes read.
fn check_range(
    context: &Context<'_>,
    range: &MappedRange,
    wanted: &[u8],
    buf: &mut Vec<u8>,
) -> u64 {
    let sectorsize = context.sectorsize as usize;
    let mut sectors = Vec::new();
    sectors.resize_with(range.len_bytes as usize / sectorsize, SectorState::default);
    buf.resize(range.len_bytes as usize, 0);
    let (mut verified, mut present) = (0, false);
    for (copy, address) in range.mirrors.iter().enumerate() {
        let device =
            context.volume.device(address.devid).and_then(|device| device.device().cloned());
        let Some(device) = device else { continue };
        present = true;
        let is_read = device.read_at(buf, address.physical.0).is_ok();
        verified += range.len_bytes;
        let state = sectors.iter_mut().zip(buf.chunks_exact_mut(sectorsize));
        let stored = wanted.chunks_exact(context.csum_type.size());
        for (number, ((sector, bytes), stored)) in state.zip(stored).enumerate() {
            // One bad sector makes the whole read fail: then each sector is read by itself.
            let at = address.physical.0 + (number * sectorsize) as u64;
            let again = if is_read { Ok(()) } else { device.read_at(bytes, at) };
            let is_good = again.is_ok() && context.csum_type.compute(bytes).as_bytes() == stored;
            sector.is_good_somewhere |= is_good;
            sector.bad_copies |= u64::from(!is_good) << copy;
            sector.unread.extend(again.err().map(|error| (copy, error)));
        }
    }
    if !present {
        return check_rebuilt(context, range, wanted, buf);
    }
    for (number, sector) in sectors.iter().enumerate() {
        let within = (number * sectorsize) as u64;
        report(context, range, within, sector);
    }
    verified
}

/// Checks a range whose device is missing, as rebuilt from parity: one way to rebuild it must
/// match.
fn check_rebuilt(context: &Context<'_>, range: &MappedRange, wanted: &[u8], buf: &mut [u8]) -> u64 {
    let (sectorsize, size) = (context.sectorsize as usize, context.csum_type.size());
    let matches = |bytes: &[u8]| {
        let sectors = bytes.chunks_exact(sectorsize).zip(wanted.chunks_exact(size));
        sectors
            .into_iter()
            .all(|(bytes, stored)| context.csum_type.compute(bytes).as_bytes() == stored)
    };
    let is_good = (1..context.volume.copies(range.logical))
        .any(|copy| context.volume.read_copy(range.logical, copy, buf).is_ok() && matches(buf));
    if !is_good {
        let differs = ChecksumEvidence::RebuiltDiffers { bytes: range.len_bytes };
        context.find(Location::logical(range.logical.0), differs);
    }
    range.len_bytes
}

fn report(context: &Context<'_>, range: &MappedRange, within: u64, sector: &SectorState) {
    let at = Location::logical(range.logical.0 + within);
    if sector.bad_copies != 0 && !sector.is_good_somewhere {
        let evidence = match sector.unread.first() {
            Some((copy, error)) => {
                ChecksumEvidence::NoCopyRead { copy: *copy, problem: error.to_string() }
            }
            None => ChecksumEvidence::NoCopyMatches,
        };
        return context.find(at, evidence);
    }
    for (copy, address) in range.mirrors.iter().enumerate() {
        if sector.bad_copies & (1 << copy) != 0 {
            let at = Location { device: Some(address.devid), ..at };
            let at = at.at_physical(address.physical.0 + within);
            context.find(at, sector.problem(copy));
        }
    }
}
