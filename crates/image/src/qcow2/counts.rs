//! The counts of references of an image's own tables.
//!
//! A cluster without a count is given out. If that were one of a table, the image would destroy
//! itself; and without a first count block, looking for a free cluster does not end.

use std::fs::File;
use std::io;

use larder_platform::FileExt;

/// Tables are no longer than the format driver opens.
const MOST_TABLE_BYTES: u64 = 32 << 20;
/// Where a table entry has the offset of a cluster.
const OFFSET_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;

/// The bytes of the header that are looked at.
pub(super) const HEADER_BYTES: u64 = 104;

/// Fails unless all tables of the image in `file` are counted.
pub(super) fn check(file: &File) -> io::Result<()> {
    let tables = Tables::read(file)?;
    let below = tables.active.iter().map(|entry| entry & OFFSET_MASK).filter(|table| *table > 0);
    let used = tables.own_clusters().chain(tables.count_blocks()).chain(below);
    for offset in used.chain([0]) {
        if !tables.is_counted(file, offset / tables.cluster_bytes)? {
            return Err(damaged());
        }
    }
    Ok(())
}

/// The offsets in entries of a table that are not empty.
pub(super) fn offsets(entries: &[u8]) -> impl Iterator<Item = u64> {
    let (entries, _) = entries.as_chunks();
    let offsets = entries.iter().map(|entry| u64::from_be_bytes(*entry) & OFFSET_MASK);
    offsets.filter(|offset| *offset > 0)
}

fn damaged() -> io::Error {
    let problem = "its counts of references are damaged; 'qemu-img check -r all' repairs them";
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// The two tables at the top of an image.
pub(super) struct Tables {
    /// Bytes of a cluster.
    pub(super) cluster_bytes: u64,
    /// Bits of a count.
    count_bits: u64,
    /// Where the table of count blocks is, and how long.
    pub(super) counts_at: (u64, u64),
    /// Where count blocks are.
    counts: Vec<u64>,
    /// The same of the table that leads to data.
    pub(super) active_at: (u64, u64),
    active: Vec<u64>,
}

impl Tables {
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0)?;
        let short = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        // Version 2 has counts of 16 bits.
        let count_order = if short(4) < 3 { 4 } else { short(96) };
        let cluster_bytes = 1_u64.checked_shl(short(20)).filter(|it| (512..=2 << 20).contains(it));
        let count_bits = 1_u64.checked_shl(count_order).filter(|bits| *bits <= 64);
        let (Some(cluster_bytes), Some(count_bits)) = (cluster_bytes, count_bits) else {
            return Err(damaged());
        };
        let counts_at = (long(48), u64::from(short(56)) * cluster_bytes);
        let active_at = (long(40), u64::from(short(36)) * 8);
        let counts = read_table(file, counts_at)?;
        let active = read_table(file, active_at)?;
        Ok(Self { cluster_bytes, count_bits, counts_at, counts, active_at, active })
    }

    /// The count blocks.
    pub(super) fn count_blocks(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|entry| entry & OFFSET_MASK).filter(|block| *block > 0)
    }

    fn counts_per_block(&self) -> u64 {
        self.cluster_bytes * 8 / self.count_bits
    }

    /// The clusters of the two tables at the top.
    fn own_clusters(&self) -> impl Iterator<Item = u64> {
        let clusters = |(at, len): (u64, u64)| {
            (0..len.div_ceil(self.cluster_bytes))
                .map(move |index| at.saturating_add(index * self.cluster_bytes))
        };
        clusters(self.counts_at).chain(clusters(self.active_at))
    }

    /// Whether the count of a cluster is above zero.
    fn is_counted(&self, file: &File, cluster: u64) -> io::Result<bool> {
        let per_block = self.counts_per_block();
        let block = self.counts.get((cluster / per_block) as usize).map(|at| at & OFFSET_MASK);
        let Some(block) = block.filter(|block| *block > 0) else { return Ok(false) };
        let first_bit = cluster % per_block * self.count_bits;
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.count_bits.div_ceil(8) as usize];
        file.read_exact_at(bytes, block + first_bit / 8)?;
        if self.count_bits < 8 {
            let mask = (1_u8 << self.count_bits) - 1;
            return Ok(bytes[0] >> (first_bit % 8) & mask != 0);
        }
        Ok(bytes.iter().any(|byte| *byte != 0))
    }
}

fn read_table(file: &File, (at, len_bytes): (u64, u64)) -> io::Result<Vec<u64>> {
    if len_bytes > MOST_TABLE_BYTES {
        return Err(damaged());
    }
    let mut bytes = vec![0; len_bytes as usize];
    file.read_exact_at(&mut bytes, at)?;
    let (entries, _) = bytes.as_chunks();
    Ok(entries.iter().map(|entry| u64::from_be_bytes(*entry)).collect())
}
