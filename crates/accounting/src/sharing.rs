//! The extents that several files refer to, for a caller that asks about many extents.

use std::fs::File;
use std::io::{BufWriter, Write};

use larder_filesystem::{Error, Filesystem, Result};
use larder_platform::FileExt;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::forest::Forest;
use crate::leaves::Leaves;
use crate::opened::Opened;
use crate::ranges::RangeUnion;
use crate::root_sets::{RootSets, SetId};
use crate::roots::Roots;
use crate::sorter::temporary_file;
use crate::watch::{AccountingPhase, Watch};

/// Ranges in a block of the file.
const RANGES_PER_BLOCK: usize = 256;

/// A range: its first address, and the one after its last.
type Span = [u64; 2];

/// The extents that several files refer to, in this subvolume or another. They are in a temporary
/// file; 8 bytes for each 256 ranges of them are in memory.
pub struct SharedExtents {
    /// The first address in each block of the file.
    firsts: Vec<u64>,
    file: File,
    /// How many ranges there are.
    len: usize,
    /// The block that was read last, and its number.
    last: Mutex<(usize, Vec<Span>)>,
}

/// The references to one extent so far.
struct ExtentReferences {
    extent: u64,
    disk_bytes: u64,
    set: SetId,
    inode: u64,
    is_shared: bool,
}

/// As [`SharedExtents::find`].
pub(crate) fn find(filesystem: &Filesystem, mut watch: Watch<'_>) -> Result<Option<SharedExtents>> {
    let roots = Roots::of(filesystem)?;
    let mut sets = RootSets::default();
    let forest = Forest::grow(filesystem, &roots, &mut sets, &mut watch)?;
    let opened = Opened::none(&sets);
    let mut leaves = Leaves::read(filesystem, &roots, &sets, &forest, &opened, &mut watch)?;
    if watch.unreadable > 0 {
        return Ok(None);
    }
    let mut shared = RangeUnion::default();
    let mut found: Option<ExtentReferences> = None;
    let (mut done, total) = (0, leaves.references.len());
    while let Some(reference) = leaves.references.next()? {
        if done % 4096 == 0 {
            watch.tell(AccountingPhase::Extents, done, total)?;
        }
        done += 1;
        // Subvolumes that are being deleted have no files any more.
        if sets.count_below(reference.set, roots.subvolumes) == 0 {
            continue;
        }
        match &mut found {
            Some(found) if found.extent == reference.extent => {
                found.set = sets.union(found.set, reference.set)?;
                found.is_shared |= found.inode != reference.inode;
            }
            _ => {
                if let Some(found) = &found {
                    found.add_to(&mut shared, &sets, &roots)?;
                }
                found = Some(ExtentReferences {
                    extent: reference.extent,
                    disk_bytes: reference.disk_bytes,
                    set: reference.set,
                    inode: reference.inode,
                    is_shared: false,
                });
            }
        }
    }
    if let Some(found) = &found {
        found.add_to(&mut shared, &sets, &roots)?;
    }
    SharedExtents::of(shared).map(Some)
}

impl ExtentReferences {
    fn add_to(&self, shared: &mut RangeUnion, sets: &RootSets, roots: &Roots) -> Result<()> {
        let is_shared = self.is_shared || sets.count_below(self.set, roots.subvolumes) > 1;
        if !is_shared {
            return Ok(());
        }
        shared.add(self.extent..self.extent.saturating_add(self.disk_bytes))
    }
}

impl SharedExtents {
    fn of(union: RangeUnion) -> Result<Self> {
        let mut ranges = union.ranges()?;
        let (mut firsts, mut len) = (Vec::new(), 0);
        let mut file = BufWriter::new(temporary_file().map_err(Error::Temporary)?);
        while let Some(range) = ranges.next()? {
            if len % RANGES_PER_BLOCK == 0 {
                firsts.push(range.start);
            }
            let span: Span = [range.start, range.end];
            file.write_all(span.as_bytes()).map_err(Error::Temporary)?;
            len += 1;
        }
        let file = file.into_inner().map_err(|error| Error::Temporary(error.into_error()))?;
        Ok(Self { firsts, file, len, last: Mutex::new((usize::MAX, Vec::new())) })
    }

    /// Whether several files refer to the extent that the logical address is in.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn covers(&self, logical: u64) -> Result<bool> {
        let after = self.firsts.partition_point(|first| *first <= logical);
        let Some(block) = after.checked_sub(1) else { return Ok(false) };
        let mut last = self.last.lock();
        if last.0 != block {
            let first = block * RANGES_PER_BLOCK;
            let mut spans = vec![Span::default(); RANGES_PER_BLOCK.min(self.len - first)];
            let offset = (first * size_of::<Span>()) as u64;
            self.file.read_exact_at(spans.as_mut_bytes(), offset).map_err(Error::Temporary)?;
            *last = (block, spans);
        }
        let after = last.1.partition_point(|[start, _]| *start <= logical);
        Ok(after > 0 && logical < last.1[after - 1][1])
    }
}

impl std::fmt::Debug for SharedExtents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedExtents").field("ranges", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_many_blocks() {
        let mut union = RangeUnion::default();
        for number in 0..1000_u64 {
            union.add(number * 100 + 50..number * 100 + 60).expect("there is room");
        }
        let shared = SharedExtents::of(union).expect("there is room");
        for address in (0..100_100).step_by(7) {
            let expected = address < 100_000 && (50..60).contains(&(address % 100));
            assert_eq!(shared.covers(address).expect("it reads back"), expected, "{address}");
        }
        let none = SharedExtents::of(RangeUnion::default()).expect("there is room");
        assert!(!none.covers(1).expect("there is nothing to read"));
    }
}
