//! The extents of files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::vec;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{EXTENT_LAST, FIEMAP, FIEMAP_SYNC, Fiemap, FiemapExtent};
use crate::call;
use crate::invalid::invalid;

/// The most extents that one answer has.
const MOST_EXTENTS: usize = 256;

/// A part of a file that is no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Logical address of its data; that of the whole extent if it is compressed.
    pub address: u64,
    /// Bytes of the file that it covers.
    pub len_bytes: u64,
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
}

/// The extents of a file, in order. Data that is in memory only is written back first.
pub fn mapped_extents(file: BorrowedFd<'_>) -> MappedExtents<'_> {
    MappedExtents { file, next: Some(0), found: Vec::new().into_iter() }
}

/// Iterates over the extents of a file, as many of them in memory as one answer holds. An error is
/// the last one.
#[derive(Debug)]
pub struct MappedExtents<'a> {
    file: BorrowedFd<'a>,
    /// Where the next answer begins.
    next: Option<u64>,
    found: vec::IntoIter<MappedExtent>,
}

impl Iterator for MappedExtents<'_> {
    type Item = io::Result<MappedExtent>;

    fn next(&mut self) -> Option<io::Result<MappedExtent>> {
        if let Some(extent) = self.found.next() {
            return Some(Ok(extent));
        }
        let from = self.next.take()?;
        match some_extents(self.file, from) {
            Ok(some) => {
                let last = some.last().filter(|last| last.flags & EXTENT_LAST == 0);
                self.next = last.and_then(|last| last.offset.checked_add(last.len_bytes));
                self.found = some.into_iter();
                self.found.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// The first extents from the one at `start` on; none if there are none.
fn some_extents(file: impl AsFd, start: u64) -> io::Result<Vec<MappedExtent>> {
    let asked = Fiemap {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_SYNC,
        mapped_extents: 0,
        extent_count: MOST_EXTENTS as u32,
        reserved: 0,
    };
    let mut bytes = vec![0; size_of::<Fiemap>() + MOST_EXTENTS * size_of::<FiemapExtent>()];
    bytes[..size_of::<Fiemap>()].copy_from_slice(asked.as_bytes());
    let array_bytes =
        |asked: &Fiemap| u64::from(asked.extent_count) * size_of::<FiemapExtent>() as u64;
    call::with_more(file, FIEMAP, &mut bytes, array_bytes, None)?;
    let short = || invalid("an answer that is too short");
    let (answer, mut rest) = Fiemap::read_from_prefix(&bytes).map_err(|_| short())?;
    let mut extents: Vec<MappedExtent> = Vec::new();
    for _ in 0..answer.mapped_extents {
        let (extent, behind) = FiemapExtent::read_from_prefix(rest).map_err(|_| short())?;
        let FiemapExtent { logical: offset, physical: address, length, flags, .. } = extent;
        if length == 0 || extents.last().is_some_and(|before| before.offset >= offset) {
            return Err(invalid("extents that are not in order"));
        }
        extents.push(MappedExtent { offset, address, len_bytes: length, flags });
        rest = behind;
    }
    Ok(extents)
}
