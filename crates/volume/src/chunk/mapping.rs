//! From the bytes of a chunk to addresses on devices, and back.
//!
//! A striped chunk is a table: a *row* is a full stripe, a *column* one piece of 64 KiB in it. Data
//! columns come first, then P, then Q. RAID5 and RAID6 rotate each row by one device more than the
//! row before. A chunk that is not striped is a table of one cell, as large as the chunk.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Logical, Physical};

use super::Chunk;

/// An address on a device that holds bytes of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// The index of the chunk's stripe.
    pub stripe: usize,
    /// Id of the device.
    pub devid: u64,
    /// The physical address on the device.
    pub physical: Physical,
}

/// A range of a chunk that is contiguous on each device that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its logical address.
    pub logical: Logical,
    /// Length in bytes; not 0.
    pub len_bytes: u64,
    /// Its row.
    pub row: u64,
    /// Its data column.
    pub column: usize,
    /// Its offset in the cell, in bytes.
    pub within_bytes: u64,
}

/// The content of a byte of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The byte of this address.
    Data(Logical),
    /// Parity of the row that starts at this address: 0 for P, 1 for Q.
    Parity {
        /// First address of the row.
        row: Logical,
        /// 0 for P, 1 for Q.
        parity: usize,
    },
}

impl Chunk {
    /// Bytes of a cell: of the piece on one device before the next follows.
    fn cell_bytes(&self) -> u64 {
        if self.is_striped() { STRIPE_LEN_BYTES } else { self.len_bytes() }
    }

    /// Bytes of data in a row: in a full stripe.
    pub fn row_bytes(&self) -> u64 {
        self.cell_bytes() * self.data_stripes() as u64
    }

    /// The first address of a row.
    pub(crate) fn row_start(&self, row: u64) -> Logical {
        Logical(self.logical().0 + row * self.row_bytes())
    }

    /// The segment that starts at `logical` and ends at its cell's end, or after `len_bytes`.
    ///
    /// # Panics
    /// If `logical` does not lie in the chunk.
    pub fn segment(&self, logical: Logical, len_bytes: u64) -> Segment {
        assert!(self.contains(logical), "{logical} is not in the chunk at {}", self.logical());
        let offset = logical.0 - self.logical().0;
        let (cell, cell_bytes) = (offset / self.cell_bytes(), self.cell_bytes());
        let (within_bytes, columns) = (offset % cell_bytes, self.data_stripes() as u64);
        Segment {
            logical,
            len_bytes: len_bytes.min(cell_bytes - within_bytes),
            row: cell / columns,
            column: (cell % columns) as usize,
            within_bytes,
        }
    }

    /// The segments of a range, in order. The part past the chunk's end is left out.
    pub fn segments(
        &self,
        logical: Logical,
        len_bytes: u64,
    ) -> impl Iterator<Item = Segment> + use<'_> {
        let end = logical.0.saturating_add(len_bytes).min(self.end().0);
        let mut next = logical.0;
        std::iter::from_fn(move || {
            let segment = (next < end).then(|| self.segment(Logical(next), end - next))?;
            next += segment.len_bytes;
            Some(segment)
        })
    }

    /// The addresses of the segment's copies, one for each mirror.
    pub fn addresses(&self, segment: &Segment) -> impl Iterator<Item = DeviceAddress> + use<'_> {
        let segment = *segment;
        (0..self.mirrors()).map(move |mirror| self.address(&segment, mirror))
    }

    /// The address of the segment on this mirror.
    pub(crate) fn address(&self, segment: &Segment, mirror: usize) -> DeviceAddress {
        let stripe = if self.has_parity() {
            self.stripe_of_column(segment.row, segment.column)
        } else {
            segment.column * self.mirrors() + mirror
        };
        self.address_in_stripe(stripe, segment.row, segment.within_bytes)
    }

    /// The address at `within_bytes` in a cell of a row of a chunk with parity; the columns after
    /// the data are P and Q.
    pub fn column_address(&self, row: u64, column: usize, within_bytes: u64) -> DeviceAddress {
        self.address_in_stripe(self.stripe_of_column(row, column), row, within_bytes)
    }

    fn stripe_of_column(&self, row: u64, column: usize) -> usize {
        ((row + column as u64) % self.stripes().len() as u64) as usize
    }

    fn address_in_stripe(&self, stripe: usize, row: u64, within_bytes: u64) -> DeviceAddress {
        let at = &self.stripes()[stripe];
        let physical = Physical(at.physical.0 + row * self.cell_bytes() + within_bytes);
        DeviceAddress { stripe, devid: at.devid, physical }
    }

    /// The content of the byte at `offset` of the stripe with this index.
    ///
    /// # Panics
    /// If there is no such stripe or `offset` passes its end.
    pub fn content_at(&self, stripe: usize, offset: u64) -> Content {
        assert!(stripe < self.stripes().len() && offset < self.bytes_per_stripe());
        let (row, within) = (offset / self.cell_bytes(), offset % self.cell_bytes());
        let row_start = self.row_start(row);
        let column = if self.has_parity() {
            let stripes = self.stripes().len() as u64;
            ((stripe as u64 + stripes - row % stripes) % stripes) as usize
        } else {
            stripe / self.mirrors()
        };
        match column.checked_sub(self.data_stripes()) {
            Some(parity) => Content::Parity { row: row_start, parity },
            None => {
                Content::Data(Logical(row_start.0 + column as u64 * self.cell_bytes() + within))
            }
        }
    }

    /// The content at an address of a device: one entry for each stripe that covers it.
    pub fn contents_at(&self, devid: u64, physical: Physical) -> impl Iterator<Item = Content> {
        let per_stripe = self.bytes_per_stripe();
        self.stripes().iter().enumerate().filter_map(move |(index, stripe)| {
            let offset = physical.0.checked_sub(stripe.physical.0)?;
            (stripe.devid == devid && offset < per_stripe).then(|| self.content_at(index, offset))
        })
    }

    /// The ranges (start, bytes) of the chunk that must never be allocated, in order and apart from
    /// each other: the cells of 64 KiB that share a device's bytes with a superblock copy, with
    /// parity their whole rows, and the first 64 KiB of address space.
    ///
    /// The free space tree counts them as free all the same.
    pub fn superblock_ranges(&self) -> Vec<(Logical, u64)> {
        let mut ranges = Vec::new();
        let reserved = OFFSETS[0].0.min(self.end().0);
        if self.logical().0 < reserved {
            ranges.push((self.logical(), reserved - self.logical().0));
        }
        for (index, stripe) in self.stripes().iter().enumerate() {
            for copy in OFFSETS {
                let Some(offset) = copy.0.checked_sub(stripe.physical.0) else { continue };
                if offset < self.bytes_per_stripe() {
                    ranges.push(self.range_around(self.content_at(index, offset)));
                }
            }
        }
        ranges.sort_unstable();
        merge(ranges)
    }

    fn range_around(&self, content: Content) -> (Logical, u64) {
        debug_assert!(SUPERBLOCK_SIZE as u64 <= STRIPE_LEN_BYTES);
        let (start, len_bytes) = match content {
            Content::Data(logical) if self.has_parity() => {
                (self.row_start(self.segment(logical, 1).row), self.row_bytes())
            }
            Content::Data(logical) => (logical, STRIPE_LEN_BYTES),
            Content::Parity { row, .. } => (row, self.row_bytes()),
        };
        (start, len_bytes.min(self.end().0 - start.0))
    }
}

/// Joins the sorted ranges that touch or overlap.
fn merge(ranges: Vec<(Logical, u64)>) -> Vec<(Logical, u64)> {
    let mut merged: Vec<(Logical, u64)> = Vec::with_capacity(ranges.len());
    for (start, len_bytes) in ranges {
        match merged.last_mut() {
            Some((last, bytes)) if start.0 <= last.0 + *bytes => {
                *bytes = (*bytes).max(start.0 - last.0 + len_bytes);
            }
            _ => merged.push((start, len_bytes)),
        }
    }
    merged
}
