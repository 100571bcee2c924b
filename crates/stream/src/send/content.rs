//! The differences between a file's content and the parent's.
//!
//! # Invariants
//! - The sender skips a range only if both files store it in the same part of the same extent, or
//!   both read as zeros there, and the parent's file goes on after it. The sender sends all data
//!   past the end of the parent's file, since the receiver has nothing there.

use std::ops::RangeInclusive;

use larder_filesystem::{Error, ExtentContent, Extents, Inode, MappedRange};
use larder_format::FileOffset;

/// A range of the new file that differs from what the receiver has.
pub(super) enum Part<'a> {
    /// Data, in this extent.
    Data(&'a MappedRange),
    /// Zeros, where the receiver has data.
    Zeros,
}

/// Calls `visit` with the start and end of each range of `new` that the receiver does not have.
/// Compares all extents of both files from that at the start of `extents` to that at its end. `old`
/// is the receiver's file; without it all is holes.
pub(super) fn compare<E: From<Error>>(
    new: &Inode,
    old: Option<&Inode>,
    extents: RangeInclusive<u64>,
    mut visit: impl FnMut(u64, u64, Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (start, last) = extents.into_inner();
    let size_bytes = new.size_bytes();
    let mut before = Before::new(old, start)?;
    for extent in new.clone().into_file()?.mapped_from(start)? {
        let extent = extent?;
        let end = extent.end().min(size_bytes);
        let mut at = extent.start.0.max(start);
        while at < end {
            let part_end = before.advance_to(at)?.min(end);
            if extent.start.0 > last && before.starts_after(last) {
                return Ok(());
            }
            if extent.is_data() {
                if !before.is_same(new, &extent, at)? {
                    visit(at, part_end, Part::Data(&extent))?;
                }
            } else if before.is_data() {
                visit(at, part_end, Part::Zeros)?;
            }
            at = part_end;
        }
    }
    Ok(())
}

/// The content of the receiver's file, extent by extent.
struct Before<'a> {
    file: Option<(&'a Inode, Extents)>,
    /// The extent at the current offset; `None` after the end of the file.
    extent: Option<MappedRange>,
}

impl<'a> Before<'a> {
    fn new(inode: Option<&'a Inode>, start: u64) -> Result<Self, Error> {
        let file = match inode {
            Some(inode) => Some((inode, inode.clone().into_file()?.mapped_from(start)?)),
            None => None,
        };
        Ok(Self { file, extent: None })
    }

    /// Moves to the offset `at`, which never goes back. Returns the end of the extent there.
    fn advance_to(&mut self, at: u64) -> Result<u64, Error> {
        let Some((inode, extents)) = &mut self.file else { return Ok(u64::MAX) };
        let size_bytes = inode.size_bytes();
        if at >= size_bytes {
            self.extent = None;
            return Ok(u64::MAX);
        }
        while self.extent.as_ref().is_none_or(|extent| extent.end() <= at) {
            self.extent = extents.next().transpose()?;
            if self.extent.is_none() {
                return Ok(u64::MAX);
            }
        }
        let end = self.extent.as_ref().map_or(u64::MAX, MappedRange::end);
        Ok(end.min(size_bytes))
    }

    fn starts_after(&self, offset: u64) -> bool {
        self.extent.as_ref().is_none_or(|extent| extent.start.0 > offset)
    }

    fn is_data(&self) -> bool {
        self.extent.as_ref().is_some_and(MappedRange::is_data)
    }

    /// Whether it has at `at` the same data as the file `new` has in `extent`.
    fn is_same(&self, new: &Inode, extent: &MappedRange, at: u64) -> Result<bool, Error> {
        let (Some((old, _)), Some(before)) = (&self.file, &self.extent) else { return Ok(false) };
        match (&before.content, &extent.content) {
            (ExtentContent::Data(ours), ExtentContent::Data(theirs)) => {
                let place = |disk: &larder_filesystem::DiskExtent, start: FileOffset| {
                    (disk.logical, disk.compression, disk.offset_bytes + (at - start.0))
                };
                Ok(place(ours, before.start) == place(theirs, extent.start))
            }
            (ExtentContent::Inline(ours), ExtentContent::Inline(theirs)) => {
                let len = ours.len_bytes.max(theirs.len_bytes) as usize;
                let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
                let read = (
                    Inode::clone(old).into_file()?.read_at(&mut ours, 0)?,
                    new.clone().into_file()?.read_at(&mut theirs, 0)?,
                );
                Ok(read.0 == read.1 && ours == theirs)
            }
            _ => Ok(false),
        }
    }
}
