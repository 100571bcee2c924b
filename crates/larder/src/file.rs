//! Regular files.

use std::io;
use std::ops::{Deref, Range};

use larder_filesystem::ExtentContent;
use larder_format::FileOffset;
use larder_format::compression::Algorithm;

use crate::{Inode, Result};

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    inode: Inode,
}

/// A range of a file and where its data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Its offset in the file.
    pub offset: u64,
    /// Bytes of the file that it covers.
    pub len_bytes: u64,
    /// Its content.
    pub kind: ExtentKind,
    /// How its data is compressed.
    pub compression: Option<Algorithm>,
    /// The logical address of its data; that of the whole extent if it is compressed.
    pub logical: Option<u64>,
    /// Bytes that the whole extent takes on disk, of which this may be a part.
    pub disk_bytes: u64,
}

/// The content of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// A hole: it reads as zeros.
    Hole,
    /// Inline data.
    Inline,
    /// Preallocated space, which reads as zeros.
    Preallocated,
    /// Data in an extent.
    Data,
    /// Data that is in memory only: writeback allocates space for it.
    Delayed,
}

impl File {
    pub(crate) fn new(inode: Inode) -> Self {
        Self { inode }
    }

    pub(crate) fn inner(&self) -> larder_filesystem::File<'_> {
        self.inode.inner().as_file().expect("it was made of a regular file")
    }

    /// Size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.inode.inner().size_bytes()
    }

    /// Reads from `offset` on. Returns how many bytes were read: fewer than asked for only at the
    /// end of the file.
    ///
    /// Reads are quickest when they are large, and start and end at whole sectors.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.inner().read_at(buf, offset)?)
    }

    /// The extents from the one that covers `offset` up to the end of the file, with the holes
    /// between them, and those allocated after the end. As with `FIEMAP` without
    /// `FIEMAP_FLAG_SYNC`, data in memory shows only where there is none on disk.
    pub fn extents_from(
        &self,
        offset: u64,
    ) -> Result<impl Iterator<Item = Result<Extent>> + use<>> {
        let extents = self.inner().extents_from(FileOffset(offset))?;
        Ok(extents.map(|extent| Ok(Extent::from(&extent?))))
    }

    /// Whether the extent at `offset` also belongs to another file, or to another place in this
    /// one, as `FIEMAP_EXTENT_SHARED` says. In a file system that is open for writing this commits
    /// first.
    pub fn is_shared(&self, offset: u64) -> Result<bool> {
        Ok(self.inner().is_shared(offset)?)
    }

    /// The first offset at or after `offset` where there is data; preallocated space has none.
    ///
    /// [`NoSuchPosition`](crate::ErrorKind::NoSuchPosition) if there is no more data.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        Ok(self.inner().seek_data(offset)?)
    }

    /// The first offset at or after `offset` where there is no data: at the latest the end of the
    /// file.
    ///
    /// [`NoSuchPosition`](crate::ErrorKind::NoSuchPosition) if `offset` is at or after the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.inner().seek_hole(offset)?)
    }

    /// The ranges that have data, in order, neither touching nor overlapping, cut at the end of the
    /// file.
    pub fn data_ranges(&self) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for extent in self.inner().extents_from(FileOffset(0))? {
            let extent = extent?;
            let (start, end) = (extent.start.0, extent.end().min(self.len_bytes()));
            match ranges.last_mut() {
                _ if !extent.is_data() || start >= end => {}
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Ok(ranges)
    }

    /// A reader of the file with a position of its own.
    pub fn reader(&self) -> Reader {
        Reader { file: self.clone(), position: 0 }
    }

    /// The inode as such.
    pub fn into_inode(self) -> Inode {
        self.inode
    }
}

impl Deref for File {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl From<&larder_filesystem::Extent> for Extent {
    fn from(extent: &larder_filesystem::Extent) -> Self {
        let (kind, compression, disk) = match &extent.content {
            ExtentContent::Hole => (ExtentKind::Hole, None, None),
            ExtentContent::Delayed => (ExtentKind::Delayed, None, None),
            ExtentContent::Inline(inline) => (ExtentKind::Inline, inline.compression, None),
            ExtentContent::Preallocated(disk) => (ExtentKind::Preallocated, None, Some(disk)),
            ExtentContent::Data(disk) => (ExtentKind::Data, disk.compression, Some(disk)),
        };
        let logical = disk.map(|disk| match disk.compression {
            Some(_) => disk.logical.0,
            None => disk.logical.0 + disk.offset_bytes,
        });
        Self {
            offset: extent.start.0,
            len_bytes: extent.len_bytes,
            kind,
            compression,
            logical,
            disk_bytes: disk.map_or(0, |disk| disk.disk_bytes),
        }
    }
}

/// Reads a file from a position that moves on.
#[derive(Clone, Debug)]
pub struct Reader {
    file: File,
    position: u64,
}

impl io::Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buf, self.position)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl io::Seek for Reader {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => self.position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.file.len_bytes().checked_add_signed(by),
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        self.position = position.ok_or_else(invalid)?;
        Ok(self.position)
    }
}
