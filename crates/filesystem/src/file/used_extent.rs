//! The extents of a file, with what else uses them.

use std::iter;

use crate::error::Result;
use crate::filesystem::sharing::{OwnReferences, SharingLookup};
use crate::handle::file::File;
use crate::item::extent::{ExtentContent, MappedRange};
use crate::item::shown_extent::Extent;

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
        let last_snapshot = file.subvolume().root_item().last_snapshot.get();
        let own =
            OwnReferences { subvolume: file.subvolume_id(), inode: file.number(), origin: None };
        let mut sharing = SharingLookup::new(file.subvolume().filesystem(), own)?;
        let mut ranges = file.mapped_from(offset)?;
        Ok(iter::from_fn(move || {
            let mut used = |range: &MappedRange| {
                let is_shared = match &range.content {
                    ExtentContent::Preallocated(disk) | ExtentContent::Data(disk) => {
                        // The leaf of a newer item is newer than the last snapshot too, so no other
                        // subvolume has it.
                        sharing.is_shared(disk.logical.0, disk.generation > last_snapshot)?
                    }
                    _ => false,
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
