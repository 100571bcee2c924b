//! File extent items.

use larder_format::compression::{Algorithm, ExtentKind, decompress};
use larder_format::item::{
    FileExtent, FileExtentHeader, MAX_COMPRESSED_EXTENT_BYTES, RegularExtent,
};

use super::fragment::ExtentRange;
use super::leaf::ItemView;
use crate::evidence::FileEvidence;
use crate::extents::DataReference;
use crate::report::Location;

const COMPRESSION_ALGORITHMS: u8 = 3;

impl ItemView<'_, '_, '_> {
    pub(super) fn file_extent(&mut self) -> Option<()> {
        let extent = self.parsed(FileExtent::parse(self.item.data))?;
        self.extent_header(extent.header())?;
        let range = match extent {
            FileExtent::Inline { header, data } => self.inline_extent(header, data)?,
            FileExtent::Regular { header, extent, preallocated } => {
                let range = self.regular_extent(header, extent, preallocated)?;
                match extent.disk_bytenr() {
                    Some(_) if preallocated => self.note_checksums_of_room(extent),
                    Some(_) => {
                        self.count_compressed(header, extent);
                        self.count_checksums(header, extent);
                    }
                    None => {}
                }
                range
            }
        };
        let (context, tree) = (self.inspector.context, self.item.tree);
        let (fragment, _) = self.fragment();
        fragment.add_extent(context, tree, range);
        Some(())
    }

    fn extent_header(&self, header: &FileExtentHeader) -> Option<()> {
        let FileExtentHeader { generation, compression, encryption, other_encoding, .. } = header;
        if *compression > COMPRESSION_ALGORITHMS || *encryption != 0 || other_encoding.get() != 0 {
            self.find(FileEvidence::Encoding {
                compression: *compression,
                encryption: *encryption,
                other_encoding: other_encoding.get(),
            });
            return None;
        }
        if generation.get() > self.context().generation().saturating_add(1) {
            self.find(FileEvidence::Generation { found: generation.get() });
        }
        Some(())
    }

    fn inline_extent(&self, header: &FileExtentHeader, data: &[u8]) -> Option<ExtentRange> {
        let (start, ram_bytes) = (self.item.key.offset, header.ram_bytes.get());
        let sectorsize = self.context().sectorsize;
        if start != 0 {
            self.find(FileEvidence::InlineNotFirst);
            return None;
        }
        let (most, is_whole) = match header.compression {
            0 => (sectorsize, data.len() as u64 == ram_bytes),
            _ => (MAX_COMPRESSED_EXTENT_BYTES, true),
        };
        if ram_bytes > most || !is_whole {
            self.find(FileEvidence::InlineLen { ram_bytes, data_bytes: data.len() });
            return None;
        }
        if let Some(algorithm) = Algorithm::from_disk(header.compression) {
            let mut content = vec![0; ram_bytes as usize];
            let kind = ExtentKind::Inline;
            let done = decompress(algorithm, data, &mut content, sectorsize as u32, kind);
            if let Err(problem) = done {
                self.find(FileEvidence::Compressed { algorithm: algorithm.name(), problem });
            }
        }
        let end = ram_bytes.next_multiple_of(sectorsize);
        let inline_bytes = Some(data.len() as u32);
        let (covered_bytes, is_written) = (ram_bytes, true);
        Some(ExtentRange { start, end, covered_bytes, is_written, inline_bytes })
    }

    fn regular_extent(
        &self,
        header: &FileExtentHeader,
        extent: &RegularExtent,
        preallocated: bool,
    ) -> Option<ExtentRange> {
        let (start, num_bytes) = (self.item.key.offset, extent.num_bytes.get());
        let offset = extent.offset.get();
        let end = start.checked_add(num_bytes);
        if let Some(problem) = self.fields_problem(header, extent, preallocated) {
            self.find(problem);
            return None;
        }
        let end = end?;
        let Some(disk_bytenr) = extent.disk_bytenr() else {
            return Some(ExtentRange {
                start,
                end,
                covered_bytes: 0,
                is_written: false,
                inline_bytes: None,
            });
        };
        if let Some(references) = self.references {
            references.add_data(&DataReference {
                item: self.item,
                start: disk_bytenr.0,
                len_bytes: extent.disk_num_bytes.get(),
                offset: start.wrapping_sub(offset),
                is_written: !preallocated,
            });
        }
        let (covered_bytes, is_written) = (num_bytes, !preallocated);
        Some(ExtentRange { start, end, covered_bytes, is_written, inline_bytes: None })
    }

    /// The problem of the fields by themselves.
    fn fields_problem(
        &self,
        header: &FileExtentHeader,
        extent: &RegularExtent,
        preallocated: bool,
    ) -> Option<FileEvidence> {
        let context = self.context();
        let (start, num_bytes) = (self.item.key.offset, extent.num_bytes.get());
        let (offset, disk_num_bytes) = (extent.offset.get(), extent.disk_num_bytes.get());
        let disk_bytenr = extent.disk_bytenr.get();
        let ram_bytes = header.ram_bytes.get();
        let aligned = [start, num_bytes, offset, disk_num_bytes, disk_bytenr, ram_bytes];
        let end = offset.checked_add(num_bytes);
        if !aligned.iter().all(|value| context.is_aligned(*value)) {
            Some(FileEvidence::Unaligned)
        } else if num_bytes == 0 || start.checked_add(num_bytes).is_none() {
            Some(FileEvidence::Len)
        } else if preallocated && header.compression != 0 {
            Some(FileEvidence::PreallocatedAndCompressed)
        } else if disk_bytenr == 0 {
            None
        } else if header.compression == 0 && end.is_none_or(|end| end > disk_num_bytes) {
            Some(FileEvidence::PastExtent)
        } else if end.is_none_or(|end| end > ram_bytes) {
            Some(FileEvidence::PastData)
        } else if header.compression != 0 && ram_bytes > MAX_COMPRESSED_EXTENT_BYTES {
            Some(FileEvidence::HoldsTooMuch)
        } else {
            None
        }
    }

    /// Notes checksums of a preallocated range: they are right if another file has data there.
    fn note_checksums_of_room(&self, extent: &RegularExtent) {
        let Some((extents, checksums)) = self.inspector.space else { return };
        let start = extent.disk_bytenr.get().saturating_add(extent.offset.get());
        if let Some(bytes) = checksums.covered_bytes(start, extent.num_bytes.get())
            && bytes > 0
        {
            let location = Location::tree(self.item.tree).at(self.item.leaf).key(self.item.key);
            extents.note_checksums_of_room(extent.disk_bytenr.get(), location, bytes);
        }
    }

    /// Counts what is stored of a compressed extent.
    fn count_compressed(&mut self, header: &FileExtentHeader, extent: &RegularExtent) {
        if header.compression != 0 {
            let (fragment, _) = self.fragment();
            fragment.compressed_bytes =
                fragment.compressed_bytes.wrapping_add(extent.disk_num_bytes.get());
        }
    }

    /// Counts how much of a written extent has checksums.
    fn count_checksums(&mut self, header: &FileExtentHeader, extent: &RegularExtent) {
        let Some((_, checksums)) = self.inspector.space else { return };
        let (start, len_bytes) = match header.compression {
            0 => (
                extent.disk_bytenr.get().saturating_add(extent.offset.get()),
                extent.num_bytes.get(),
            ),
            _ => (extent.disk_bytenr.get(), extent.disk_num_bytes.get()),
        };
        let Some(covered) = checksums.covered_bytes(start, len_bytes) else { return };
        let (fragment, _) = self.fragment();
        fragment.bytes_with_csum = fragment.bytes_with_csum.wrapping_add(covered);
        fragment.bytes_without_csum =
            fragment.bytes_without_csum.wrapping_add(len_bytes.saturating_sub(covered));
    }
}
