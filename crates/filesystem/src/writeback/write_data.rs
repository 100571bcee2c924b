//! Writing data to the devices: to new extents, compressed or not, or to space that the file has.

use std::sync::Arc;

use larder_format::Logical;
use larder_format::compression::Algorithm;
use larder_format::item::{FileExtentItem, FileExtentKind, InodeFlags, MAX_EXTENT_BYTES};
use larder_transaction::{DataExtent, Error as EngineError};

use crate::cache::slices::Slices;
use crate::changed::Changed;
use crate::compression::compress::{Outcome, Plan, pieces};
use crate::compression::compressors::Compressors;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::extents::items::FileExtents;
use crate::item::id::InodeId;
use crate::writeback::taken::Taken;

/// Checksums of more data than this are computed by several threads, in pieces of this size, which
/// are whole sectors. For less, starting a thread takes longer than the work.
const SUMMED_BYTES: usize = 1 << 20;

/// Data that was written and that no tree refers to yet.
pub(crate) struct Written {
    /// Its offset in the file.
    start: u64,
    place: Destination,
    /// The address, if it is on disk.
    checksums: Vec<u8>,
}

/// Where data was written.
enum Destination {
    /// To an extent of its own.
    New(FileExtentItem),
    /// To space that the file had.
    InPlace { logical: Logical, len_bytes: u64 },
}

/// Data of a file that was written.
#[derive(Default)]
pub(crate) struct WrittenData {
    pub(crate) written: Vec<Written>,
    /// It did not become smaller: the file counts as incompressible from now on.
    pub(crate) gives_up: bool,
}

/// Data of one file on its way to the devices.
struct Writing<'a> {
    core: &'a Core,
    writer: &'a Writer,
    extents: &'a FileExtents<'a>,
    taken: &'a Taken,
    plan: Option<&'a Plan>,
    data: WrittenData,
}

/// Writes data that was taken from a file, whose `flushing` is held. After an error it gives all new
/// extents back.
pub(crate) fn write_data(
    core: &Core,
    writer: &Writer,
    extents: &FileExtents<'_>,
    taken: &Taken,
    plan: Option<&Plan>,
) -> Result<WrittenData> {
    let data = WrittenData::default();
    let mut writing = Writing { core, writer, extents, taken, plan, data };
    for (start, data) in taken.writeback.ranges() {
        if let Err(error) = writing.write_range(start, &data) {
            for written in &writing.data.written {
                written.abandon(writer)?;
            }
            return Err(error);
        }
    }
    Ok(writing.data)
}

impl Writer {
    /// Allocates an extent of `wanted_bytes`, whole sectors, or of fewer.
    pub(crate) fn allocate_data(&self, wanted_bytes: u64) -> Changed<DataExtent> {
        let wanted_bytes = wanted_bytes.min(MAX_EXTENT_BYTES);
        let sectorsize = u64::from(self.manager.volume().sectorsize());
        let space = self.manager.space();
        let (logical, len_bytes) = space.allocate_data(wanted_bytes, sectorsize)?;
        Ok(DataExtent { logical, len_bytes })
    }

    /// Allocates an extent of exactly `len_bytes`, whole sectors; none if no free space is long
    /// enough.
    pub(crate) fn allocate_whole(&self, len_bytes: u64) -> Changed<Option<DataExtent>> {
        match self.manager.space().allocate_data(len_bytes, len_bytes) {
            Ok((logical, len_bytes)) => Ok(Some(DataExtent { logical, len_bytes })),
            Err(EngineError::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives back an extent that no tree refers to yet.
    pub(crate) fn give_up(&self, data: DataExtent) -> Changed<()> {
        let range = data.logical.0..data.logical.0 + data.len_bytes;
        self.manager.space().abandoned(&range)
    }
}

impl Core {
    /// The checksums of whole sectors.
    pub(crate) fn sums_of(&self, data: &[u8]) -> Vec<u8> {
        self.sums_of_pieces(&[data])
    }

    /// The checksums of pieces of whole sectors.
    fn sums_of_pieces(&self, data: &[&[u8]]) -> Vec<u8> {
        let (algorithm, sectorsize) = (self.volume().checksum_type(), self.sectorsize() as usize);
        let sums_of = |piece: &&[u8]| {
            let mut sums = Vec::with_capacity(piece.len() / sectorsize * algorithm.size());
            for sector in piece.chunks(sectorsize) {
                sums.extend_from_slice(algorithm.compute(sector).as_bytes());
            }
            sums
        };
        if data.iter().map(|data| data.len()).sum::<usize>() <= SUMMED_BYTES {
            return data.iter().flat_map(sums_of).collect();
        }
        let pieces: Vec<&[u8]> = data.iter().flat_map(|data| data.chunks(SUMMED_BYTES)).collect();
        larder_parallel::map(&pieces, sums_of).concat()
    }
}

impl Writing<'_> {
    /// Writes `data`, which the file has at `start`.
    fn write_range(&mut self, start: u64, data: &Slices<'_>) -> Result<()> {
        let range = start..start + data.len_bytes();
        for target in self.extents.targets(self.taken.writeback.cut(), self.taken.flags, range)? {
            let (from, to) = (target.range.start, target.range.end);
            let data = data.part(from - start, to - from);
            match (target.place, self.plan) {
                (Some(logical), _) => {
                    let place = Destination::InPlace { logical, len_bytes: data.len_bytes() };
                    self.put(logical, &data, from, place)?;
                }
                (None, Some(plan)) => self.write_compressed(plan, from, &data)?,
                (None, None) => self.write_plain(from, &data)?,
            }
        }
        Ok(())
    }

    /// Writes data to new extents, as it is.
    fn write_plain(&mut self, start: u64, data: &Slices<'_>) -> Result<()> {
        let (mut done, len_bytes) = (0, data.len_bytes());
        while done < len_bytes {
            let extent = self.writer.allocate_data(len_bytes - done)?;
            let part = data.part(done, extent.len_bytes);
            self.put_new(extent, &part, start + done, extent.len_bytes, None)?;
            done += extent.len_bytes;
        }
        Ok(())
    }

    /// Writes data to new extents. Pieces that become smaller are compressed.
    fn write_compressed(&mut self, plan: &Plan, start: u64, data: &Slices<'_>) -> Result<()> {
        let sectorsize = self.core.volume().sectorsize();
        let compressors = &self.writer.compressors;
        let pieces = pieces(data, start, self.taken.size_bytes);
        // Adjacent uncompressed pieces go together.
        let mut left_from = 0;
        for batch in pieces.chunks(Compressors::batch_len()) {
            let _turn = compressors.begin(batch);
            let outcomes = plan.compress(batch, sectorsize, compressors);
            self.data.gives_up |= plan.gives_up(&outcomes);
            for (piece, outcome) in batch.iter().zip(outcomes) {
                let Outcome::Compressed(stream) = outcome else { continue };
                let within = piece.start - start;
                let left = data.part(left_from, within - left_from);
                self.write_plain(start + left_from, &left)?;
                left_from = within;
                if let Some(extent) = self.writer.allocate_whole(stream.len() as u64)? {
                    let (len, algorithm) = (piece.data.len_bytes(), Some(plan.algorithm()));
                    let stream = Slices::from(&stream[..]);
                    self.put_new(extent, &stream, piece.start, len, algorithm)?;
                    left_from += len;
                }
            }
        }
        self.write_plain(start + left_from, &data.part(left_from, u64::MAX))
    }

    /// Writes bytes to an extent that was just allocated and holds `ram_bytes` of the file from
    /// `start` on.
    fn put_new(
        &mut self,
        extent: DataExtent,
        stored: &Slices<'_>,
        start: u64,
        ram_bytes: u64,
        compression: Option<Algorithm>,
    ) -> Result<()> {
        let item = self.extents.item(FileExtentKind::Regular, extent, ram_bytes, compression);
        self.put(extent.logical, stored, start, Destination::New(item))
    }

    fn put(
        &mut self,
        logical: Logical,
        stored: &Slices<'_>,
        start: u64,
        place: Destination,
    ) -> Result<()> {
        let has_checksums = !self.taken.flags.contains(InodeFlags::NODATASUM);
        let sums = || self.core.sums_of_pieces(stored.pieces());
        let checksums = if has_checksums { sums() } else { Vec::new() };
        // Noted before it is written, so that an error gives it back.
        self.data.written.push(Written { start, place, checksums });
        let mut at = logical;
        let InodeId { subvolume, number: inode } = self.extents.id;
        for piece in stored.pieces() {
            self.core.volume().write(at, piece).map_err(|problem| EngineError::DataWrite {
                subvolume,
                inode,
                offset: start,
                problem: Arc::new(problem),
            })?;
            at.0 += piece.len() as u64;
        }
        Ok(())
    }
}

impl Written {
    /// Inserts extents for the data into the trees, in place of the file's old ones. Returns how
    /// many bytes of those were allocated.
    pub(crate) fn enter(&self, extents: &FileExtents<'_>) -> Changed<u64> {
        let (logical, dropped_bytes) = match &self.place {
            Destination::New(item) => {
                let end = self.start + item.extent.num_bytes.get();
                let dropped_bytes = extents.drop_range(self.start, end)?;
                extents.insert_new(self.start, item)?;
                (Logical(item.extent.disk_bytenr.get()), dropped_bytes)
            }
            Destination::InPlace { logical, len_bytes } => {
                extents.mark_written(self.start, self.start + len_bytes)?;
                (*logical, 0)
            }
        };
        if !self.checksums.is_empty() {
            extents.handle.insert_checksums(logical, &self.checksums)?;
        }
        Ok(dropped_bytes)
    }

    /// Bytes of the file that were not allocated before, except those that [`enter`](Self::enter)
    /// returns.
    pub(crate) fn added_bytes(&self) -> u64 {
        match &self.place {
            Destination::New(item) => item.extent.num_bytes.get(),
            Destination::InPlace { .. } => 0,
        }
    }

    /// Gives a new extent back. Nothing has referred to it, and a commit need not come first: none
    /// can as long as this data cannot be written.
    fn abandon(&self, writer: &Writer) -> Changed<()> {
        let Destination::New(item) = &self.place else { return Ok(()) };
        let start = item.extent.disk_bytenr.get();
        let range = start..start + item.extent.disk_num_bytes.get();
        writer.manager().space().unused(&range)
    }
}
