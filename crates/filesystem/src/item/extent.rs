//! One extent of a file: an `EXTENT_DATA` item, checked.

use std::ops::Range;

use larder_btree::ItemRef;
use larder_format::compression::Algorithm;
use larder_format::item::{
    FILE_EXTENT_INLINE_HEADER_SIZE, FileExtent, FileExtentHeader, MAX_COMPRESSED_EXTENT_BYTES,
    RegularExtent,
};
use larder_format::{FileOffset, FormatError, Logical};

/// What the tree or memory has for a range of a file.
#[derive(Clone, Debug)]
pub struct MappedRange {
    /// Its offset in the file.
    pub start: FileOffset,
    /// Bytes of the file that it covers: whole sectors, except a hole at the end of the file.
    pub len_bytes: u64,
    /// Its content.
    pub content: ExtentContent,
}

/// Where the content is.
#[derive(Clone, Debug)]
pub enum ExtentContent {
    /// A hole: it reads as zeros.
    Hole,
    /// Data that is in memory only: writeback allocates space for it.
    Delayed,
    /// The data is inline.
    Inline(InlineExtent),
    /// Preallocated space, which reads as zeros.
    Preallocated(DiskExtent),
    /// The data is in an extent on disk.
    Data(DiskExtent),
}

/// Inline data.
#[derive(Clone, Debug)]
pub struct InlineExtent {
    pub(crate) item: ItemRef,
    /// How it is compressed.
    pub compression: Option<Algorithm>,
    /// Bytes of data after decompression; zeros follow up to the end of the sector.
    pub len_bytes: u64,
}

/// A part of an extent on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskExtent {
    /// The address of the whole extent.
    pub logical: Logical,
    /// Bytes of the whole extent on disk.
    pub disk_bytes: u64,
    /// Bytes of the whole extent after decompression.
    pub ram_bytes: u64,
    /// Offset of the part in the whole extent, decompressed.
    pub offset_bytes: u64,
    /// How the extent is compressed.
    pub compression: Option<Algorithm>,
    /// The transaction that wrote the item.
    pub generation: u64,
}

impl MappedRange {
    /// Its end in the file.
    pub fn end(&self) -> u64 {
        self.start.0 + self.len_bytes
    }

    /// Whether there is data: neither a hole nor preallocated space.
    pub fn is_data(&self) -> bool {
        !matches!(self.content, ExtentContent::Hole | ExtentContent::Preallocated(_))
    }

    /// The part of it in `range`, which overlaps it.
    pub(crate) fn part(&self, range: &Range<u64>) -> Self {
        let start = self.start.0.max(range.start);
        let mut content = self.content.clone();
        if let ExtentContent::Preallocated(disk) | ExtentContent::Data(disk) = &mut content {
            disk.offset_bytes += start - self.start.0;
        }
        Self { start: FileOffset(start), len_bytes: self.end().min(range.end) - start, content }
    }

    /// The same, with a hole extended to whole sectors.
    pub(crate) fn in_whole_sectors(mut self, sectorsize: u64) -> Self {
        let end = self.end().next_multiple_of(sectorsize);
        self.start.0 -= self.start.0 % sectorsize;
        self.len_bytes = end - self.start.0;
        self
    }

    /// The addresses of the sectors that it has of an uncompressed extent with data.
    pub(crate) fn plain_range(&self) -> Option<(Logical, Logical)> {
        match &self.content {
            ExtentContent::Data(disk @ DiskExtent { compression: None, .. }) => {
                let start = disk.logical.0 + disk.offset_bytes;
                Some((Logical(start), Logical(start + self.len_bytes)))
            }
            _ => None,
        }
    }

    /// Checks the `EXTENT_DATA` item `item`.
    pub(crate) fn from_item(item: ItemRef, sectorsize: u64) -> Result<Self, FormatError> {
        let start = item.key().offset;
        let (content, len_bytes) = match FileExtent::parse(&item)? {
            FileExtent::Inline { header, data } => {
                let len_bytes = check_inline(start, header, data, sectorsize)?;
                let compression = compression(header)?;
                let whole_bytes = len_bytes.next_multiple_of(sectorsize);
                (ExtentContent::Inline(InlineExtent { item, compression, len_bytes }), whole_bytes)
            }
            FileExtent::Regular { header, extent, preallocated } => {
                let len_bytes = extent.num_bytes.get();
                check_range(start, len_bytes, sectorsize)?;
                let content = match extent.disk_bytenr() {
                    None => ExtentContent::Hole,
                    Some(logical) => {
                        let extent = disk_extent(logical, header, extent, sectorsize)?;
                        if preallocated {
                            ExtentContent::Preallocated(extent)
                        } else {
                            ExtentContent::Data(extent)
                        }
                    }
                };
                (content, len_bytes)
            }
        };
        Ok(Self { start: FileOffset(start), len_bytes, content })
    }
}

impl InlineExtent {
    /// The data as it is stored.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.item.data()[FILE_EXTENT_INLINE_HEADER_SIZE..]
    }
}

/// Whether an extent can be as an item says.
fn check(is_right: bool, problem: &'static str) -> Result<(), FormatError> {
    if is_right { Ok(()) } else { Err(FormatError::invalid("file extent", problem)) }
}

fn compression(header: &FileExtentHeader) -> Result<Option<Algorithm>, FormatError> {
    let is_plain = header.encryption == 0 && header.other_encoding.get() == 0;
    check(is_plain, "it is encrypted or encoded in an unknown way")?;
    if header.compression == 0 {
        return Ok(None);
    }
    let algorithm = Algorithm::from_disk(header.compression);
    check(algorithm.is_some(), "it is compressed in an unknown way")?;
    Ok(algorithm)
}

/// The length of inline data after decompression.
fn check_inline(
    start: u64,
    header: &FileExtentHeader,
    stored: &[u8],
    sectorsize: u64,
) -> Result<u64, FormatError> {
    let len_bytes = header.ram_bytes.get();
    check(start == 0, "it is inline and not at the start of the file")?;
    if header.compression == 0 {
        check(stored.len() as u64 == len_bytes, "it is inline and has not its length")?;
    }
    let limit_bytes = sectorsize.max(stored.len() as u64);
    check(len_bytes <= limit_bytes, "it is inline and longer than a sector")?;
    Ok(len_bytes)
}

fn check_range(start: u64, len_bytes: u64, sectorsize: u64) -> Result<(), FormatError> {
    let is_aligned = start.is_multiple_of(sectorsize) && len_bytes.is_multiple_of(sectorsize);
    check(is_aligned, "it is not whole sectors of the file")?;
    check(len_bytes > 0, "it is empty")?;
    check(start.checked_add(len_bytes).is_some(), "it passes the end of all offsets")
}

fn disk_extent(
    logical: Logical,
    header: &FileExtentHeader,
    extent: &RegularExtent,
    sectorsize: u64,
) -> Result<DiskExtent, FormatError> {
    let disk = DiskExtent {
        logical,
        disk_bytes: extent.disk_num_bytes.get(),
        ram_bytes: header.ram_bytes.get(),
        offset_bytes: extent.offset.get(),
        compression: compression(header)?,
        generation: header.generation.get(),
    };
    let numbers = [logical.0, disk.disk_bytes, disk.ram_bytes, disk.offset_bytes];
    let is_aligned = numbers.iter().all(|number| number.is_multiple_of(sectorsize));
    check(is_aligned, "it is not whole sectors on disk")?;
    check(logical.checked_add(disk.disk_bytes).is_some(), "it passes the end of all addresses")?;
    let whole_bytes = match disk.compression {
        Some(_) => {
            let longest = disk.ram_bytes.max(disk.disk_bytes);
            check(longest <= MAX_COMPRESSED_EXTENT_BYTES, "it is too long to be compressed")?;
            disk.ram_bytes
        }
        None => disk.disk_bytes,
    };
    let end = disk.offset_bytes.checked_add(extent.num_bytes.get());
    check(end.is_some_and(|end| end <= whole_bytes), "it passes the end of its extent")?;
    Ok(disk)
}
