//! The output of workers.

use larder_format::Key;
use larder_format::compression::Algorithm;
use parking_lot::Mutex;

use super::SEGMENT_BYTES;

/// Items and data of some inodes, in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) records: Vec<Record>,
    /// The data of the item records, one after the other.
    pub(crate) item_bytes: Vec<u8>,
    /// Whole sectors for the extent records, one after the other, up to `data_len`. Its length is 0
    /// or [`SEGMENT_BYTES`].
    pub(crate) data: Vec<u8>,
    pub(crate) data_len: usize,
    /// Whether any of it is compressed.
    pub(crate) compression_used: bool,
    /// Checksums of these sectors; zeros where there are none.
    pub(crate) checksums: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    /// An item with so many bytes of data.
    Item { key: Key, len: usize },
    /// Data of a file.
    Extent {
        inode: u64,
        piece: Piece,
        /// Whether it has checksums.
        is_summed: bool,
    },
    /// The entries of the directory at this node.
    Entries { node: u32 },
}

/// A range of a file whose data is stored in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) file_offset: u64,
    /// Bytes of the file, in whole sectors.
    pub(crate) num_bytes: u64,
    /// Bytes as stored, in whole sectors.
    pub(crate) disk_bytes: u64,
    pub(crate) compression: Option<Algorithm>,
}

impl Output {
    /// Adds an item.
    pub(crate) fn item(&mut self, key: Key, parts: &[&[u8]]) {
        let before = self.item_bytes.len();
        for part in parts {
            self.item_bytes.extend_from_slice(part);
        }
        self.records.push(Record::Item { key, len: self.item_bytes.len() - before });
    }

    /// Adds a piece whose data is at the end of `data`. An uncompressed piece is merged with the
    /// one before it if both are parts of one range.
    pub(crate) fn extent(&mut self, inode: u64, piece: Piece, is_summed: bool) {
        if let Some(Record::Extent { inode: before_inode, piece: before, .. }) =
            self.records.last_mut()
            && *before_inode == inode
            && before.compression.is_none()
            && piece.compression.is_none()
            && before.file_offset + before.num_bytes == piece.file_offset
        {
            before.num_bytes += piece.num_bytes;
            before.disk_bytes += piece.disk_bytes;
        } else {
            self.records.push(Record::Extent { inode, piece, is_summed });
        }
    }

    /// The unused part of the data buffer.
    pub(crate) fn data_room(&mut self, buffers: &BufferPool) -> &mut [u8] {
        if self.data.is_empty() {
            self.data = buffers.take();
        }
        &mut self.data[self.data_len..]
    }
}

/// Buffers of [`SEGMENT_BYTES`] with any content. Allocating large ones over and over would cost
/// more than copying into them.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    pub(crate) fn take(&self) -> Vec<u8> {
        let buffer = self.0.lock().pop();
        buffer.unwrap_or_else(|| vec![0; SEGMENT_BYTES])
    }

    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), SEGMENT_BYTES);
        self.0.lock().push(buffer);
    }
}
