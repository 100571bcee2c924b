//! Whether others have the data of a file, too.

use crate::error::{Error, Result};
use crate::file::extent::{Extent, ExtentContent};
use crate::inode::handle::Inode;

impl Inode {
    /// Whether the extent on disk that the file has at `offset` is another file's, too, or is in this one in
    /// another place: what `FIEMAP_EXTENT_SHARED` says. It is not for two parts of one extent that lie as far
    /// from each other as on disk. In a file system that is open for writing this is a commit first.
    pub fn is_shared(&self, offset: u64) -> Result<bool> {
        let filesystem = self.subvolume().filesystem();
        filesystem.sync()?;
        let Some(extent) = self.extents_within(offset, offset.saturating_add(1)).next() else {
            return Ok(false);
        };
        let extent = extent?;
        let (ExtentContent::Data(disk) | ExtentContent::Preallocated(disk)) = &extent.content
        else {
            return Ok(false);
        };
        let places = match filesystem.places_of(disk.logical, true) {
            // It was replaced meanwhile.
            Err(Error::NotFound) => return Ok(false),
            places => places?,
        };
        let mut origin = None;
        for place in places {
            if (place.subvolume, place.inode) != (self.subvolume().id(), self.number()) {
                return Ok(true);
            }
            let here = self.extents_within(place.offset, place.offset + 1).next();
            let here = here.transpose()?.and_then(|extent| origin_of(&extent));
            if here.is_some() && *origin.get_or_insert(here) != here {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where in the file all of an extent on disk would begin; it wraps around.
fn origin_of(extent: &Extent) -> Option<u64> {
    match &extent.content {
        ExtentContent::Data(disk) | ExtentContent::Preallocated(disk) => {
            Some(extent.start.0.wrapping_sub(disk.offset_bytes))
        }
        _ => None,
    }
}
