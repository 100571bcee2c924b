//! A tree block while it fills.

use larder_format::node::{
    BACKREF_REV_MIXED, BACKREF_REV_SHIFT, HEADER_FLAG_WRITTEN, HEADER_SIZE, Header,
    ITEM_HEADER_SIZE, ItemHeader, KEY_POINTER_SIZE, KeyPointer,
};
use larder_format::{Key, Logical, Uuid};
use zerocopy::{FromBytes, IntoBytes};

use crate::image::BlockRecord;
use crate::settings::GENERATION;

/// A tree block while it fills: item headers or key pointers from the front, item data from the
/// back.
#[derive(Debug)]
pub(crate) struct OpenNode {
    bytes: Vec<u8>,
    owner: u64,
    level: u8,
    first_key: Option<Key>,
    nritems: usize,
    /// Start of the item data in `bytes`.
    data_start: usize,
}

impl OpenNode {
    pub(crate) fn new(owner: u64, level: u8, node_size: usize) -> Self {
        let bytes = vec![0; node_size];
        Self { bytes, owner, level, first_key: None, nritems: 0, data_start: node_size }
    }

    /// Makes the block empty again.
    pub(crate) fn clear(&mut self) {
        self.bytes.fill(0);
        (self.first_key, self.nritems, self.data_start) = (None, 0, self.bytes.len());
    }

    /// The key of the first entry, if there is one.
    pub(crate) fn first_key(&self) -> Option<Key> {
        self.first_key
    }

    /// The extent tree's record of the block.
    pub(crate) fn record(&self, logical: Logical) -> BlockRecord {
        let first_key = self.first_key.unwrap_or(Key::MIN);
        BlockRecord { logical, owner: self.owner, level: self.level, first_key }
    }

    /// Whether an item with data of this length fits.
    pub(crate) fn fits_item(&self, data_len: usize) -> bool {
        let headers_end = HEADER_SIZE + (self.nritems + 1) * ITEM_HEADER_SIZE;
        headers_end + data_len <= self.data_start
    }

    /// Whether a key pointer fits.
    pub(crate) fn fits_pointer(&self) -> bool {
        HEADER_SIZE + (self.nritems + 1) * KEY_POINTER_SIZE <= self.bytes.len()
    }

    /// Adds an item that fits.
    pub(crate) fn push_item(&mut self, key: Key, data: &[u8]) {
        let data_end = self.data_start;
        self.data_start -= data.len();
        self.bytes[self.data_start..data_end].copy_from_slice(data);
        let header = ItemHeader {
            key: key.into(),
            offset: ((self.data_start - HEADER_SIZE) as u32).into(),
            size: (data.len() as u32).into(),
        };
        self.push(key, header.as_bytes());
    }

    /// Adds a key pointer that fits.
    pub(crate) fn push_pointer(&mut self, key: Key, child: Logical) {
        let pointer =
            KeyPointer { key: key.into(), blockptr: child.0.into(), generation: GENERATION.into() };
        self.push(key, pointer.as_bytes());
    }

    fn push(&mut self, key: Key, entry: &[u8]) {
        let start = HEADER_SIZE + self.nritems * entry.len();
        self.bytes[start..start + entry.len()].copy_from_slice(entry);
        self.first_key.get_or_insert(key);
        self.nritems += 1;
    }

    /// The whole block for its address, complete except for the checksum.
    pub(crate) fn seal(&mut self, bytenr: Logical, fsid: Uuid, chunk_tree_uuid: Uuid) -> &[u8] {
        let (header, _) =
            Header::mut_from_prefix(&mut self.bytes).expect("a block is longer than its header");
        *header = Header {
            csum: [0; 32],
            fsid: fsid.into_bytes(),
            bytenr: bytenr.0.into(),
            flags: (HEADER_FLAG_WRITTEN | BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into(),
            chunk_tree_uuid: chunk_tree_uuid.into_bytes(),
            generation: GENERATION.into(),
            owner: self.owner.into(),
            nritems: (self.nritems as u32).into(),
            level: self.level,
        };
        &self.bytes
    }
}
