//! Writing data that is already compressed.

use larder_format::compression::{Algorithm, ExtentKind, decompress};
use larder_format::item::{FileExtentKind, InodeFlags, MAX_COMPRESSED_EXTENT_BYTES};
use larder_transaction::{DataExtent, Error as EngineError};

use crate::change::changeable::Changeable;
use crate::change::file_change::{FileChange, StillFile};
use crate::error::{Error, Result};
use crate::file::read_live::Need;
use crate::file::write::MOST_BYTES;
use crate::handle::file::File;
use crate::live::inode::InodeState;
use crate::operation::data_reservation::{DataNeed, reserve_within_quota};
use crate::writeback::flush::write_back;
use crate::xattr::capability::drop_capability;

/// Compressed data of a file: the part that the file has, and the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// How it is compressed.
    pub algorithm: Algorithm,
    /// Bytes of the file.
    pub len_bytes: u64,
    /// Bytes of the data, decompressed.
    pub unencoded_bytes: u64,
    /// Offset of the file's bytes in the decompressed data: whole sectors.
    pub unencoded_offset: u64,
}

impl File {
    /// Writes compressed data to the regular file at `offset`, the start of a sector, as
    /// `BTRFS_IOC_ENCODED_WRITE` does. The written range ends at a sector's end too, or at the end
    /// of the file, which may grow to it. The data is decompressed once, as a check.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` for a range that is not as above, for data
    /// that does not decompress to its stated length, that is not shorter than that, or that is
    /// longer than an extent, and for a file without checksums.
    pub fn write_encoded(&self, data: &[u8], encoded: &Encoded, offset: u64) -> Result<()> {
        let target = self.changeable()?;
        let Changeable { core, writer, live, .. } = target;
        let sectorsize = core.sectorsize();
        let end = offset.checked_add(encoded.len_bytes).filter(|end| *end <= MOST_BYTES);
        let end = end.ok_or(Error::FileTooLarge)?;
        if !offset.is_multiple_of(sectorsize) {
            return Err(Error::Invalid("a range that does not begin with a sector"));
        }
        encoded.check(data, sectorsize)?;
        drop_capability(self)?;
        let is_short = offset == 0 && encoded.is_whole() && encoded.len_bytes <= sectorsize;
        let kind = if is_short && data.len() as u64 <= core.write_policy().max_inline_bytes {
            ExtentKind::Inline
        } else {
            ExtentKind::Regular
        };
        let plain = encoded.decompress(data, kind, core.volume().sectorsize())?;
        let room_bytes = (data.len() as u64).next_multiple_of(sectorsize);
        // Each sector may be of an extent that goes.
        let need = DataNeed {
            references: encoded.len_bytes.div_ceil(sectorsize),
            ..DataNeed::of_data(room_bytes + 2 * sectorsize, 3)
        };
        let reservation = reserve_within_quota(core, self.subvolume().id(), need)?;
        let change = FileChange::start(target, reservation)?;
        let mut file = change.lock(live);
        file.check_may_write(offset)?;
        if file.item.flags().contains(InodeFlags::NODATASUM) {
            return Err(Error::Invalid("the file has no checksums"));
        }
        if end < file.size_bytes && !end.is_multiple_of(sectorsize) {
            return Err(Error::Invalid("a range that does not end with a sector"));
        }
        if !file.pages.is_clean() {
            write_back(&mut file)?;
        }
        let entered = match kind {
            ExtentKind::Inline => enter_inline(&mut file, data, encoded)?,
            ExtentKind::Regular => match writer.allocate_whole(room_bytes)? {
                Some(extent) => {
                    let entered = self.enter_extent(&mut file, data, encoded, extent, offset);
                    if entered.is_err() {
                        writer.give_up(extent)?;
                    }
                    entered?;
                    true
                }
                None => false,
            },
        };
        drop(file);
        change.end()?;
        if entered {
            return Ok(());
        }
        // The file has more data, or no free space is long enough: it is written like other data.
        let start = encoded.unencoded_offset as usize;
        self.write_at(&plain[start..start + encoded.len_bytes as usize], offset)
    }

    /// Writes the data to `extent`, which was just allocated, and replaces the file's extents at
    /// `offset` with it. An error comes before the trees change.
    fn enter_extent(
        &self,
        file: &mut StillFile<'_, '_>,
        data: &[u8],
        encoded: &Encoded,
        extent: DataExtent,
        offset: u64,
    ) -> Result<()> {
        let (writer, live, handle) = (file.writer(), file.live(), file.handle());
        let core = self.core();
        let sectorsize = core.sectorsize();
        let mut stored = data.to_vec();
        stored.resize(extent.len_bytes as usize, 0);
        let checksums = file.unlocked(|| {
            let written = core.volume().write(extent.logical, &stored);
            written.map(|()| core.sums_of(&stored)).map_err(EngineError::from)
        })?;
        self.grow_locked(file, offset)?;
        if offset > 0 {
            self.load(file, &[Need::IfInline])?;
        }
        // First the data before it.
        file.note_dirty();
        write_back(file)?;
        let _alone = file.exclude_readers();
        writer.note_compression(encoded.algorithm.name().as_bytes());
        let ram_bytes = encoded.unencoded_bytes.next_multiple_of(sectorsize);
        let covered_bytes = encoded.len_bytes.next_multiple_of(sectorsize);
        let extents = file.extents();
        let algorithm = Some(encoded.algorithm);
        let mut item = extents.item(FileExtentKind::Regular, extent, ram_bytes, algorithm);
        item.extent.offset = encoded.unencoded_offset.into();
        item.extent.num_bytes = covered_bytes.into();
        file.apply(|file| {
            let dropped_bytes = extents.drop_range(offset, offset + covered_bytes)?;
            extents.insert_new(offset, &item)?;
            handle.insert_checksums(extent.logical, &checksums)?;
            file.added(dropped_bytes, covered_bytes, offset + encoded.len_bytes);
            file.touch(handle.generation(), true);
            live.put_item(file)
        })?;
        Ok(())
    }
}

impl InodeState {
    /// Bytes replaced others in the file, which reaches up to `end` at least.
    fn added(&mut self, dropped_bytes: u64, added_bytes: u64, end: u64) {
        let nbytes = self.item.nbytes.get().saturating_sub(dropped_bytes) + added_bytes;
        self.item.nbytes = nbytes.into();
        self.size_bytes = self.size_bytes.max(end);
        self.item.size = self.size_bytes.into();
    }
}

/// Stores all data of the file inline, unless there is more. Returns whether it did.
fn enter_inline(file: &mut StillFile<'_, '_>, data: &[u8], encoded: &Encoded) -> Result<bool> {
    let (writer, live, handle) = (file.writer(), file.live(), file.handle());
    let _alone = file.exclude_readers();
    let extents = file.extents();
    let sectorsize = extents.sectorsize;
    if file.size_bytes > encoded.len_bytes || extents.has_any_from(sectorsize)? {
        return Ok(false);
    }
    writer.note_compression(encoded.algorithm.name().as_bytes());
    file.apply(|file| {
        let dropped_bytes = extents.drop_range(0, sectorsize)?;
        extents.insert_inline(data, encoded.len_bytes, Some(encoded.algorithm))?;
        file.added(dropped_bytes, encoded.len_bytes, encoded.len_bytes);
        file.touch(handle.generation(), true);
        live.put_item(file)
    })?;
    Ok(true)
}

impl Encoded {
    /// Whether the file has all of the data.
    fn is_whole(&self) -> bool {
        self.unencoded_offset == 0 && self.len_bytes == self.unencoded_bytes
    }

    /// Whether such an extent is possible.
    fn check(&self, data: &[u8], sectorsize: u64) -> Result<()> {
        let stored_bytes = data.len() as u64;
        let longest = self.unencoded_bytes.max(stored_bytes);
        if stored_bytes == 0 || longest > MAX_COMPRESSED_EXTENT_BYTES {
            return Err(Error::Invalid("no data, or more than a compressed extent send_guards"));
        }
        if stored_bytes >= self.unencoded_bytes {
            return Err(Error::Invalid("compressed data that is not shorter"));
        }
        let end = self.unencoded_offset.checked_add(self.len_bytes);
        let is_within = end.is_some_and(|end| end <= self.unencoded_bytes);
        if self.len_bytes == 0 || !is_within || !self.unencoded_offset.is_multiple_of(sectorsize) {
            return Err(Error::Invalid("a part that the data does not have"));
        }
        Ok(())
    }

    /// The data, decompressed.
    fn decompress(&self, data: &[u8], kind: ExtentKind, sectorsize: u32) -> Result<Vec<u8>> {
        let expected_len = self.unencoded_bytes as usize;
        // One byte more than there should be: a stream may end before its space does.
        let room = expected_len + usize::from(kind == ExtentKind::Regular);
        let mut plain = vec![0; room];
        match decompress(self.algorithm, data, &mut plain, sectorsize, kind) {
            Ok(len) if len == expected_len => {
                plain.truncate(len);
                Ok(plain)
            }
            _ => Err(Error::Invalid("data that does not decompress to its stated length")),
        }
    }
}
