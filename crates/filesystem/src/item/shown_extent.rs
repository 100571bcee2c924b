//! Extents as the library shows them.

use larder_format::compression::Algorithm;

use crate::item::extent::{ExtentContent, MappedRange};

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

impl From<&MappedRange> for Extent {
    fn from(range: &MappedRange) -> Self {
        let (kind, compression, disk) = match &range.content {
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
            offset: range.start.0,
            len_bytes: range.len_bytes,
            kind,
            compression,
            logical,
            disk_bytes: disk.map_or(0, |disk| disk.disk_bytes),
        }
    }
}
