//! Reading a file's data.

use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use larder_format::compression::{ExtentKind, decompress};
use larder_format::item::InodeFlags;
use larder_format::{FileOffset, Logical};
use larder_platform::OsStringExt;

use crate::cache::extent_map::{ExtentMap, KnownExtent};
use crate::core::shared::Core;
use crate::error::{DataError, Error, Result};
use crate::file::cursor::FileCursor;
use crate::handle::file::File;
use crate::handle::inode::Inode;
use crate::item::extent::{DiskExtent, ExtentContent, InlineExtent, MappedRange};
use crate::item::metadata::FileType;

/// Data is read and verified in pieces of this size, so that a piece is verified while it is in the
/// processor's cache.
const PIECE_BYTES: usize = 256 << 10;
/// The most checksums of an extent that are cached; with more, each read searches for them.
const REMEMBERED_CHECKSUMS: u64 = 64;

/// How data is verified.
#[derive(Clone, Copy)]
pub(crate) enum Verify<'a> {
    /// It has no checksums.
    Not,
    /// By the checksums in the tree.
    Searched,
    /// By these checksums, of the sectors from an address on.
    Known(Logical, &'a [u8]),
}

/// What was found in the trees on the way.
pub(crate) type Learned = Vec<(Range<u64>, KnownExtent)>;

/// The longest target in bytes (`PATH_MAX` without its end).
const TARGET_MAX_BYTES: u64 = 4095;

impl File {
    /// Size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.size_bytes()
    }

    /// The inode as such.
    pub fn into_inode(self) -> Inode {
        self.inode
    }

    /// Reads and writes the file from one position after the other, beginning at 0.
    pub fn cursor(&self) -> FileCursor {
        FileCursor { file: self.clone(), position: 0 }
    }

    /// Reads from `offset` on. Returns how many bytes were read: fewer than asked for only at the
    /// end of the file.
    ///
    /// Data with checksums is verified; a bad copy is replaced by a good one if the volume is
    /// writable. Reads are quickest when they are large, and start and end at whole sectors: those
    /// go straight from the device to `buf`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if let Some(live) = self.try_live_inode() {
            return self.read_live(live, buf, offset);
        }
        let len = self.size_bytes().saturating_sub(offset).min(buf.len() as u64) as usize;
        self.read_range(&mut buf[..len], offset)?;
        Ok(len)
    }

    /// Reads the whole compressed extent `extent`, which the file has at `offset`, as it is stored.
    /// Data with checksums is verified.
    #[doc(hidden)]
    pub fn read_stored(&self, extent: &DiskExtent, offset: u64) -> Result<Vec<u8>> {
        let has_checksums = !self.item().flags().contains(InodeFlags::NODATASUM);
        let mut stored = vec![0; extent.disk_bytes as usize];
        let core = self.core();
        let verify = Verify::searched_if(has_checksums);
        core.read_sectors(extent.logical, &mut stored, verify).map_err(|problem| Error::Data {
            subvolume: self.subvolume().id(),
            inode: self.number(),
            offset: FileOffset(offset),
            problem: Box::new(problem),
        })?;
        Ok(stored)
    }
}

impl Inode {
    /// The target of the symbolic link.
    pub fn link_target(&self) -> Result<PathBuf> {
        if self.file_type() != FileType::Symlink {
            return Err(Error::NotASymlink);
        }
        let len_bytes = self.size_bytes().min(TARGET_MAX_BYTES);
        let mut target = vec![0; len_bytes as usize];
        self.read_range(&mut target, 0)?;
        Ok(OsString::from_vec(target).into())
    }

    /// Fills `buf` from `offset` on, with zeros where there is no data.
    pub(crate) fn read_range(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let has_checksums = !self.item().flags().contains(InodeFlags::NODATASUM);
        self.read_stored_range(buf, offset, has_checksums)
    }

    /// Fills `buf` from `offset` on with the data that the tree has, and with zeros elsewhere.
    pub(crate) fn read_stored_range(
        &self,
        buf: &mut [u8],
        offset: u64,
        has_checksums: bool,
    ) -> Result<()> {
        let core = self.core();
        core.while_content_stays(|| self.read_searched_range(buf, offset, has_checksums))
    }

    fn read_searched_range(
        &self,
        mut buf: &mut [u8],
        offset: u64,
        has_checksums: bool,
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        for extent in self.extents_within(offset, end) {
            let extent = extent?;
            let (start, len) = part_of(&extent, offset, end);
            let part = buf.split_off_mut(..len).expect("extents make up the range");
            self.read_extent(&extent, start, Verify::searched_if(has_checksums), part)?;
        }
        Ok(())
    }

    /// Like [`read_stored_range`](Self::read_stored_range), but searches only for what `map` does
    /// not have. Returns what it found.
    pub(crate) fn read_known_range(
        &self,
        map: &ExtentMap,
        mut buf: &mut [u8],
        offset: u64,
        has_checksums: bool,
    ) -> Result<Learned> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end
            && let Some((known, until)) = map.get(at)
        {
            let len = (until.min(end) - at) as usize;
            let part = buf.split_off_mut(..len).expect("it ends no later");
            self.read_extent(&known.extent, at, known.verify(has_checksums), part)?;
            at += len as u64;
        }
        let mut learned = Learned::new();
        if at == end {
            return Ok(learned);
        }
        for extent in self.extents_within(at, end) {
            let extent = extent?.in_whole_sectors(self.core().sectorsize());
            let (start, len) = part_of(&extent, at, end);
            let part = buf.split_off_mut(..len).expect("extents make up the range");
            let checksums = self.all_checksums(&extent, has_checksums);
            let known = KnownExtent { extent, checksums };
            self.read_extent(&known.extent, start, known.verify(has_checksums), part)?;
            if !matches!(known.extent.content, ExtentContent::Inline(_)) {
                learned.push((known.extent.start.0..known.extent.end(), known));
            }
        }
        Ok(learned)
    }

    /// The checksums of the file's part of an extent, if they are few and complete.
    fn all_checksums(&self, extent: &MappedRange, has_checksums: bool) -> Option<Arc<[u8]>> {
        let core = self.core();
        let (start, end) = extent.plain_range()?;
        let is_short = end.0 - start.0 <= REMEMBERED_CHECKSUMS * core.sectorsize();
        (has_checksums && is_short)
            .then(|| core.checksums(start, end).ok())
            .flatten()
            .map(Arc::from)
    }

    /// Fills `buf` with the part of `extent` that is at `start` in the file.
    fn read_extent(
        &self,
        extent: &MappedRange,
        start: u64,
        verify: Verify<'_>,
        buf: &mut [u8],
    ) -> Result<()> {
        let core = self.core();
        let within = start - extent.start.0;
        let outcome = match &extent.content {
            // Data in memory is copied over this later.
            ExtentContent::Hole | ExtentContent::Delayed | ExtentContent::Preallocated(_) => {
                buf.fill(0);
                Ok(())
            }
            ExtentContent::Inline(inline) => inline.read(within as usize, core, buf),
            ExtentContent::Data(disk @ DiskExtent { compression: None, .. }) => {
                let at = Logical(disk.logical.0 + disk.offset_bytes + within);
                core.read_bytes(at, buf, verify)
            }
            ExtentContent::Data(disk @ DiskExtent { compression: Some(algorithm), .. }) => {
                let within = disk.offset_bytes + within;
                let has_checksums = !matches!(verify, Verify::Not);
                core.read_compressed(disk, *algorithm, within, has_checksums, buf)
            }
        };
        outcome.map_err(|problem| Error::Data {
            subvolume: self.subvolume().id(),
            inode: self.number(),
            offset: FileOffset(start),
            problem: Box::new(problem),
        })
    }
}

/// Start in the file, and length, of the part of `extent` that a read from `offset` to `end`
/// covers.
fn part_of(extent: &MappedRange, offset: u64, end: u64) -> (u64, usize) {
    let start = extent.start.0.max(offset);
    (start, (extent.end().min(end) - start) as usize)
}

impl Verify<'_> {
    pub(crate) fn searched_if(has_checksums: bool) -> Self {
        if has_checksums { Self::Searched } else { Self::Not }
    }
}

impl KnownExtent {
    fn verify(&self, has_checksums: bool) -> Verify<'_> {
        match (&self.checksums, self.extent.plain_range()) {
            (Some(checksums), Some((start, _))) if has_checksums => Verify::Known(start, checksums),
            _ => Verify::searched_if(has_checksums),
        }
    }
}

impl InlineExtent {
    fn read(&self, within: usize, core: &Core, buf: &mut [u8]) -> Result<(), DataError> {
        let Some(algorithm) = self.compression else {
            copy_or_zero(self.stored(), within, buf);
            return Ok(());
        };
        let mut data = vec![0; self.len_bytes as usize];
        let sectorsize = core.volume().sectorsize();
        decompress(algorithm, self.stored(), &mut data, sectorsize, ExtentKind::Inline)?;
        copy_or_zero(&data, within, buf);
        Ok(())
    }
}

/// Fills `buf` with `data` from `within` on, and zeros after its end.
fn copy_or_zero(data: &[u8], within: usize, buf: &mut [u8]) {
    let data = data.get(within..).unwrap_or(&[]);
    let (there, behind) = buf.split_at_mut(data.len().min(buf.len()));
    there.copy_from_slice(&data[..there.len()]);
    behind.fill(0);
}

impl Core {
    /// Reads data at any address. Partial sectors with checksums go through a buffer.
    fn read_bytes(&self, at: Logical, buf: &mut [u8], verify: Verify<'_>) -> Result<(), DataError> {
        if matches!(verify, Verify::Not) {
            return self.read_sectors(at, buf, verify);
        }
        let sectorsize = self.sectorsize();
        let (start, end) = (at.0, at.0 + buf.len() as u64);
        let first_whole = start.next_multiple_of(sectorsize).min(end);
        let last_whole = (end - end % sectorsize).max(first_whole);
        let (head, rest) = buf.split_at_mut((first_whole - start) as usize);
        let (body, tail) = rest.split_at_mut((last_whole - first_whole) as usize);
        self.read_part_of_sector(at, head, verify)?;
        self.read_sectors(Logical(first_whole), body, verify)?;
        self.read_part_of_sector(Logical(last_whole), tail, verify)
    }

    /// Reads bytes that lie in one sector.
    fn read_part_of_sector(
        &self,
        at: Logical,
        buf: &mut [u8],
        verify: Verify<'_>,
    ) -> Result<(), DataError> {
        if buf.is_empty() {
            return Ok(());
        }
        let within = at.0 % self.sectorsize();
        let mut sector = vec![0; self.sectorsize() as usize];
        self.read_sectors(Logical(at.0 - within), &mut sector, verify)?;
        buf.copy_from_slice(&sector[within as usize..][..buf.len()]);
        Ok(())
    }

    /// Reads data straight into `buf`, and verifies the sectors that have a checksum.
    fn read_with_checksums_that_are_left(
        &self,
        at: Logical,
        buf: &mut [u8],
    ) -> Result<(), DataError> {
        let sectorsize = self.sectorsize();
        if buf.len() as u64 <= sectorsize {
            self.volume().note_unverified(at, 1);
            return self.read_sectors(at, buf, Verify::Not);
        }
        for (number, sector) in (0..).zip(buf.chunks_mut(sectorsize as usize)) {
            self.read_sectors(Logical(at.0 + number * sectorsize), sector, Verify::Searched)?;
        }
        Ok(())
    }

    /// Reads data straight into `buf`: whole sectors if it has checksums.
    pub(crate) fn read_sectors(
        &self,
        at: Logical,
        buf: &mut [u8],
        verify: Verify<'_>,
    ) -> Result<(), DataError> {
        if buf.is_empty() {
            return Ok(());
        }
        let csum_size = self.volume().checksum_type().size();
        let csums_len = |len_bytes: u64| (len_bytes / self.sectorsize()) as usize * csum_size;
        let checksums = match verify {
            Verify::Not => None,
            Verify::Searched => match self.checksums(at, Logical(at.0 + buf.len() as u64)) {
                Err(problem) if self.goes_without_checksums(&problem) => {
                    return self.read_with_checksums_that_are_left(at, buf);
                }
                checksums => Some(Cow::Owned(checksums?)),
            },
            Verify::Known(start, checksums) => {
                let checksums = &checksums[csums_len(at.0 - start.0)..];
                Some(Cow::Borrowed(&checksums[..csums_len(buf.len() as u64)]))
            }
        };
        if buf.len() > PIECE_BYTES {
            self.volume().readahead(at, buf.len() as u64);
        }
        let piece_csums = csums_len(PIECE_BYTES as u64);
        for (number, piece) in buf.chunks_mut(PIECE_BYTES).enumerate() {
            let checksums = checksums.as_ref().map(|checksums| {
                let rest = &checksums[number * piece_csums..];
                &rest[..rest.len().min(piece_csums)]
            });
            let logical = Logical(at.0 + (number * PIECE_BYTES) as u64);
            self.volume().read_data(logical, piece, checksums)?;
        }
        Ok(())
    }
}
