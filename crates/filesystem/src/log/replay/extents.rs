//! Data: file extents and their checksums in a log.

use std::ops::Range;

use larder_btree::Readahead;
use larder_format::compression::Algorithm;
use larder_format::feature::IncompatFlags;
use larder_format::item::{FileExtent, FileType, MAX_COMPRESSED_EXTENT_BYTES, RegularExtent};
use larder_format::objectid::EXTENT_CSUM;
use larder_format::{ItemType, Key, Logical};
use larder_transaction::{DataExtent, DataOwner};

use crate::changed::Changed;
use crate::log::replay::{Replay, bad, wrong};

impl Replay<'_> {
    /// Third pass: replaces the file's extents with a logged one.
    pub(super) fn replay_extent(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        let number = key.objectid;
        let (mut item, file_type) = self.existing_inode(key)?;
        self.changed.insert(number);
        if !matches!(file_type, FileType::Regular | FileType::Symlink) {
            return Err(wrong(key, "data of an inode that has none"));
        }
        let extent = FileExtent::parse(data).map_err(|problem| bad(key, problem))?;
        if self.tree.get(key)?.is_some_and(|there| there == data) {
            return Ok(());
        }
        if extent.header().generation.get() > self.recovery.handle().generation() {
            return Err(wrong(key, "it comes from a transaction that was not"));
        }
        check_form(key, &extent, self.sectorsize)?;
        let end = self.end_of(key, &extent)?;
        let dropped_bytes = self.file_extents(number).drop_range(key.offset, end)?;
        let mut added_bytes = 0;
        match &extent {
            FileExtent::Inline { header, .. } => {
                self.require_algorithm(header.compression);
                self.tree.insert(key, data)?;
                added_bytes = extent.num_bytes();
            }
            FileExtent::Regular { extent: range, header, preallocated } => {
                match range.disk_bytenr() {
                    None if !self.has_hole_items => {}
                    None => self.tree.insert(key, data)?,
                    Some(logical) => {
                        self.require_algorithm(header.compression);
                        let checksums = checksum_range(logical, range, header.compression != 0);
                        self.tree.insert(key, data)?;
                        self.refer(key, logical, range)?;
                        // No data is written to preallocated space: any checksum there is wrong.
                        if !preallocated {
                            self.insert_checksums(checksums)?;
                        }
                        added_bytes = extent.num_bytes();
                    }
                }
            }
        }
        let nbytes = item.nbytes.get().saturating_sub(dropped_bytes).saturating_add(added_bytes);
        item.nbytes = nbytes.into();
        self.put_inode(number, &item)
    }

    /// The end of an extent in the file: inline data fills its sector.
    fn end_of(&self, key: Key, extent: &FileExtent<'_>) -> Changed<u64> {
        let len_bytes = match extent {
            FileExtent::Inline { .. } => {
                extent.num_bytes().checked_next_multiple_of(self.sectorsize)
            }
            FileExtent::Regular { .. } => Some(extent.num_bytes()),
        };
        let end = len_bytes.and_then(|len_bytes| key.offset.checked_add(len_bytes));
        let end = end.filter(|end| (key.offset + 1..=1 << 63).contains(end));
        end.ok_or_else(|| wrong(key, "no extent can be so long"))
    }

    fn refer(&self, key: Key, logical: Logical, range: &RegularExtent) -> Changed<()> {
        let data = DataExtent { logical, len_bytes: range.disk_num_bytes.get() };
        let offset = key.offset.wrapping_sub(range.offset.get());
        let owner = DataOwner { root: self.subvolume, inode: key.objectid, offset };
        self.recovery.add_data_reference(data, owner)
    }

    fn require_algorithm(&self, compression: u8) {
        if compression == Algorithm::Lzo.to_disk() {
            self.recovery.require(IncompatFlags::COMPRESS_LZO);
        } else if compression == Algorithm::Zstd.to_disk() {
            self.recovery.require(IncompatFlags::COMPRESS_ZSTD);
        }
    }

    /// Inserts the log's checksums for a range of addresses.
    fn insert_checksums(&self, range: Range<u64>) -> Changed<()> {
        let at = |logical| Key::new(EXTENT_CSUM, ItemType::EXTENT_CSUM, logical);
        let sum_bytes = self.recovery.manager().volume().checksum_type().size();
        let mut cursor = self.log.cursor(Readahead::None);
        let mut is_there = cursor.seek_last(at(range.start))?;
        if !is_there || cursor.key().is_some_and(|key| key < at(0)) {
            is_there = cursor.seek(at(range.start))?;
        }
        while let Some((key, sums)) = cursor.item()
            && is_there
            && key < at(range.end)
        {
            let covered_bytes = (sums.len() / sum_bytes) as u64 * self.sectorsize;
            let start = key.offset.max(range.start);
            let end = key.offset.saturating_add(covered_bytes).min(range.end);
            if start < end {
                let sum_at =
                    |logical| ((logical - key.offset) / self.sectorsize) as usize * sum_bytes;
                let part = &sums[sum_at(start)..sum_at(end)];
                self.recovery.handle().insert_checksums(Logical(start), part)?;
            }
            is_there = cursor.next()?;
        }
        Ok(())
    }
}

/// Refuses extents that no reader could use.
fn check_form(key: Key, extent: &FileExtent<'_>, sectorsize: u64) -> Changed<()> {
    let ram_bytes = extent.header().ram_bytes.get();
    let is_compressed = extent.header().compression != 0;
    let is_possible = match extent {
        FileExtent::Inline { .. } if is_compressed => ram_bytes <= MAX_COMPRESSED_EXTENT_BYTES,
        FileExtent::Inline { .. } => ram_bytes <= sectorsize,
        FileExtent::Regular { extent, .. } if extent.disk_bytenr().is_none() => true,
        FileExtent::Regular { extent, preallocated, .. } => {
            let end = extent.offset.get().checked_add(extent.num_bytes.get());
            let disk_bytes = extent.disk_num_bytes.get();
            let most_bytes = if is_compressed { MAX_COMPRESSED_EXTENT_BYTES } else { disk_bytes };
            end.is_some_and(|end| end <= ram_bytes)
                && !(is_compressed && *preallocated)
                && if is_compressed { ram_bytes } else { end.unwrap_or(u64::MAX) } <= most_bytes
        }
    };
    if is_possible { Ok(()) } else { Err(wrong(key, "it reaches beyond its extent")) }
}

/// The addresses whose checksums belong to a file extent: the whole extent if it is compressed,
/// otherwise its part.
fn checksum_range(logical: Logical, range: &RegularExtent, is_compressed: bool) -> Range<u64> {
    if is_compressed {
        return logical.0..logical.0 + range.disk_num_bytes.get();
    }
    let start = logical.0 + range.offset.get();
    start..start + range.num_bytes.get()
}
