//! The extents of a file, with what else uses them.

use std::iter;

use crate::error::Result;
use crate::file::extent::{DiskExtent, ExtentContent, MappedRange};
use crate::file::handle::File;
use crate::file::shown_extent::Extent;

/// An extent of a file that is no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedExtent {
    /// The extent.
    pub extent: Extent,
    /// Whether another file uses some of the same data, in this subvolume or another. A part of a
    /// long extent counts as shared if any part of that is.
    pub is_shared: bool,
}

impl UsedExtent {
    /// The extents of a file from the one that covers `offset` up to the end, without the holes
    /// between them. Sharing is that of the last commit.
    pub fn all_from(
        file: &File,
        offset: u64,
    ) -> Result<impl Iterator<Item = Result<Self>> + use<>> {
        let file = file.clone();
        let mut ranges = file.mapped_from(offset)?;
        // Parts of one extent often follow each other.
        let mut known: Option<(DiskExtent, bool)> = None;
        Ok(iter::from_fn(move || {
            let mut used = |range: &MappedRange| {
                let disk = match &range.content {
                    ExtentContent::Preallocated(disk) | ExtentContent::Data(disk) => Some(disk),
                    _ => None,
                };
                let is_shared = match (disk, known) {
                    (None, _) => false,
                    (Some(disk), Some((before, is_shared)))
                        if (before.logical, before.generation)
                            == (disk.logical, disk.generation) =>
                    {
                        is_shared
                    }
                    (Some(disk), _) => {
                        let is_shared = is_shared(&file, disk)?;
                        known = Some((*disk, is_shared));
                        is_shared
                    }
                };
                Ok(Self { extent: Extent::from(range), is_shared })
            };
            let is_hole = |range: &Result<MappedRange>| {
                matches!(range, Ok(MappedRange { content: ExtentContent::Hole, .. }))
            };
            let range = ranges.by_ref().find(|range| !is_hole(range))?;
            Some(range.and_then(|range| used(&range)))
        }))
    }
}

/// Whether another file than `file`, in this subvolume or another, uses the extent.
fn is_shared(file: &File, disk: &DiskExtent) -> Result<bool> {
    // The leaf of the item is newer than the last snapshot, so no other subvolume has it.
    let is_own_leaf = disk.generation > file.subvolume().root_item().last_snapshot.get();
    let own = (file.subvolume_id(), file.number());
    file.subvolume().filesystem().is_shared(disk.logical.0, own, is_own_leaf)
}
