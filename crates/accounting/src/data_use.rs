//! What the data of one file or directory takes.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::ranges::RangeUnion;
use larder_filesystem::{Error, ExtentKind, FileType, Inode, Result, UsedExtent};

/// Bytes of data of a file, or of all files below a directory, as `btrfs filesystem du -s` counts
/// them: without inline data, before compression, and preallocated space too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataUse {
    /// In all extents of each file.
    pub total_bytes: u64,
    /// In extents of which no other file uses any part.
    pub exclusive_bytes: u64,
    /// In other extents, each counted once.
    pub shared_bytes: u64,
}

impl DataUse {
    /// What the data of a file, or of all files below a directory, takes. A file with several
    /// names counts once. Sharing is that of the last commit. `goes_on` is asked for each file.
    ///
    /// # Errors
    /// What cannot be read; [`Interrupted`](larder_filesystem::ErrorKind::Interrupted) if `goes_on`
    /// stopped it.
    pub fn of(inode: &Inode, goes_on: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Self> {
        let mut sums = Sums::default();
        if inode.file_type() == FileType::Directory {
            for entry in inode.clone().into_directory()?.walk() {
                if goes_on().is_break() {
                    return Err(Error::Interrupted);
                }
                sums.add(&entry?.inode)?;
            }
        } else {
            sums.add(inode)?;
        }
        let shared_bytes = sums.shared.sum()?;
        Ok(Self { shared_bytes, ..sums.found })
    }
}

#[derive(Default)]
struct Sums {
    found: DataUse,
    shared: RangeUnion,
    /// Files with several names.
    met: HashSet<(u64, u64)>,
}

impl Sums {
    fn add(&mut self, inode: &Inode) -> Result<()> {
        let id = (inode.subvolume_id(), inode.number());
        let is_file = inode.file_type() == FileType::Regular;
        if !is_file || (inode.metadata().nlink > 1 && !self.met.insert(id)) {
            return Ok(());
        }
        for used in UsedExtent::all_from(&inode.clone().into_file()?, 0)? {
            let UsedExtent { extent, is_shared } = used?;
            if !matches!(extent.kind, ExtentKind::Data | ExtentKind::Preallocated) {
                continue;
            }
            self.found.total_bytes += extent.len_bytes;
            if is_shared {
                let start = extent.logical.unwrap_or(0);
                self.shared.add(start..start.saturating_add(extent.len_bytes))?;
            } else {
                self.found.exclusive_bytes += extent.len_bytes;
            }
        }
        Ok(())
    }
}
