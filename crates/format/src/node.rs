//! Tree blocks: the header, and a checked view of the rest.
//!
//! A leaf (level 0) holds item headers from the front and item data from the back; an internal node
//! holds key pointers. Item offsets count from the end of the header.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::CHECKSUM_SIZE;
use crate::error::{FormatError, read_prefix};
use crate::key::{DiskKey, Key};
use crate::{Logical, Uuid};

/// Levels that a tree can have; a root is at most at level 7.
pub const MAX_LEVELS: usize = 8;
/// Size of [`Header`].
pub const HEADER_SIZE: usize = size_of::<Header>();
/// Size of [`ItemHeader`].
pub const ITEM_HEADER_SIZE: usize = size_of::<ItemHeader>();
/// Size of [`KeyPointer`].
pub const KEY_POINTER_SIZE: usize = size_of::<KeyPointer>();

/// Header flag: the block was written to disk.
pub const HEADER_FLAG_WRITTEN: u64 = 1;
/// Header flag: the block was copied by relocation.
pub const HEADER_FLAG_RELOC: u64 = 1 << 1;
/// The revision of back references lies in the top byte of the flags.
pub const BACKREF_REV_SHIFT: u32 = 56;
/// Back references of several kinds; the only revision since 2009.
pub const BACKREF_REV_MIXED: u64 = 1;

/// The header of a tree block (`struct btrfs_header`, 101 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Checksum of all that follows.
    pub csum: [u8; CHECKSUM_SIZE],
    /// The file system's metadata uuid.
    pub fsid: [u8; 16],
    /// Logical address of this block.
    pub bytenr: U64,
    /// `HEADER_FLAG_*`, and the revision of back references in the top byte.
    pub flags: U64,
    /// Uuid of the chunk tree.
    pub chunk_tree_uuid: [u8; 16],
    /// The transaction that made this copy.
    pub generation: U64,
    /// The tree that first owned the block.
    pub owner: U64,
    /// Items or key pointers.
    pub nritems: U32,
    /// Distance from the leaves.
    pub level: u8,
}

const _: () = assert!(size_of::<Header>() == 101);

impl Header {
    /// Logical address of this block.
    pub fn bytenr(&self) -> Logical {
        Logical(self.bytenr.get())
    }

    /// The flags without the revision of back references.
    pub fn flags(&self) -> u64 {
        self.flags.get() & ((1 << BACKREF_REV_SHIFT) - 1)
    }

    /// The revision of back references.
    pub fn backref_rev(&self) -> u64 {
        self.flags.get() >> BACKREF_REV_SHIFT
    }

    /// The file system's metadata uuid.
    pub fn fsid(&self) -> Uuid {
        Uuid::from_bytes(self.fsid)
    }
}

/// The header of an item in a leaf (`struct btrfs_item`, 25 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ItemHeader {
    /// Key of the item.
    pub key: DiskKey,
    /// Offset of the data from the end of the block's header, in bytes.
    pub offset: U32,
    /// Length of the data in bytes.
    pub size: U32,
}

const _: () = assert!(size_of::<ItemHeader>() == 25);

/// A child of an internal node (`struct btrfs_key_ptr`, 33 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct KeyPointer {
    /// First key in the child.
    pub key: DiskKey,
    /// Logical address of the child.
    pub blockptr: U64,
    /// Generation of the child.
    pub generation: U64,
}

const _: () = assert!(size_of::<KeyPointer>() == 33);

impl KeyPointer {
    /// Logical address of the child.
    pub fn blockptr(&self) -> Logical {
        Logical(self.blockptr.get())
    }
}

/// Most items that fit a leaf of this size (with no data).
pub const fn max_leaf_items(nodesize: usize) -> usize {
    (nodesize - HEADER_SIZE) / ITEM_HEADER_SIZE
}

/// Most key pointers that fit a node of this size.
pub const fn max_key_pointers(nodesize: usize) -> usize {
    (nodesize - HEADER_SIZE) / KEY_POINTER_SIZE
}

/// Bytes for item headers and data in a leaf of this size.
pub const fn leaf_data_size(nodesize: usize) -> usize {
    nodesize - HEADER_SIZE
}

/// Checks that the number of items or key pointers in the header fits the block.
fn check_header(bytes: &[u8]) -> Result<(), FormatError> {
    let (header, _) = read_prefix::<Header>(bytes)?;
    let nritems = header.nritems.get() as usize;
    let (level, is_leaf) = (usize::from(header.level), header.level == 0);
    let (most, kind) = if is_leaf {
        (max_leaf_items(bytes.len()), "items")
    } else {
        (max_key_pointers(bytes.len()), "key pointers")
    };
    let problem = if level >= MAX_LEVELS {
        format!("level {level} is over 7")
    } else if nritems > most {
        format!("{nritems} {kind} where {most} fit")
    } else if nritems == 0 && !is_leaf {
        "an internal node without children".into()
    } else {
        return Ok(());
    };
    Err(FormatError::invalid("tree block", problem))
}

/// A tree block whose structure was checked: every item lies inside it, items do not overlap, and
/// keys ascend. The content of items is not checked here.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Checks the structure of `bytes`, a whole tree block.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        check_header(bytes)?;
        let node = Self { bytes };
        node.check_keys()?;
        if node.is_leaf() {
            node.check_item_bounds()?;
        }
        Ok(node)
    }

    /// A view of `bytes` that [`Node::parse`] has accepted before.
    ///
    /// On other bytes the accessors may panic, but nothing worse.
    pub fn from_checked(bytes: &'a [u8]) -> Self {
        debug_assert!(check_header(bytes).is_ok());
        Self { bytes }
    }

    fn check_keys(&self) -> Result<(), FormatError> {
        for slot in 1..self.nritems() {
            let (before, key) = (self.key(slot - 1), self.key(slot));
            if before >= key {
                let problem = format!("key {key} at slot {slot} follows {before}");
                return Err(FormatError::invalid("tree block", problem));
            }
        }
        Ok(())
    }

    fn check_item_bounds(&self) -> Result<(), FormatError> {
        let mut end = leaf_data_size(self.bytes.len());
        for (slot, item) in self.items().iter().enumerate() {
            let (offset, size) = (item.offset.get() as usize, item.size.get() as usize);
            if offset.checked_add(size) != Some(end) {
                let problem = format!(
                    "item {slot} {} at offset {offset} with {size} bytes does not end at {end}",
                    item.key.get()
                );
                return Err(FormatError::invalid("leaf", problem));
            }
            end = offset;
        }
        if end < self.nritems() * ITEM_HEADER_SIZE {
            let problem = format!("item data starts at {end}, inside the item headers");
            return Err(FormatError::invalid("leaf", problem));
        }
        Ok(())
    }

    /// The whole block.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header.
    pub fn header(&self) -> &'a Header {
        Header::ref_from_prefix(self.bytes).expect("a block is longer than its header").0
    }

    /// Distance from the leaves.
    pub fn level(&self) -> u8 {
        self.header().level
    }

    /// Whether this is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Items or key pointers.
    pub fn nritems(&self) -> usize {
        self.header().nritems.get() as usize
    }

    /// The item headers of a leaf.
    pub fn items(&self) -> &'a [ItemHeader] {
        debug_assert!(self.is_leaf());
        <[ItemHeader]>::ref_from_prefix_with_elems(&self.bytes[HEADER_SIZE..], self.nritems())
            .expect("checked against the block's size")
            .0
    }

    /// The children of an internal node.
    pub fn key_pointers(&self) -> &'a [KeyPointer] {
        debug_assert!(!self.is_leaf());
        <[KeyPointer]>::ref_from_prefix_with_elems(&self.bytes[HEADER_SIZE..], self.nritems())
            .expect("checked against the block's size")
            .0
    }

    /// The key at `slot` of a leaf or node.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn key(&self, slot: usize) -> Key {
        if self.is_leaf() {
            self.items()[slot].key.get()
        } else {
            self.key_pointers()[slot].key.get()
        }
    }

    /// The first key, if there is any.
    pub fn first_key(&self) -> Option<Key> {
        (self.nritems() > 0).then(|| self.key(0))
    }

    /// The last key, if there is any.
    pub fn last_key(&self) -> Option<Key> {
        self.nritems().checked_sub(1).map(|slot| self.key(slot))
    }

    /// The data of the item at `slot` of a leaf.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn item_data(&self, slot: usize) -> &'a [u8] {
        let item = &self.items()[slot];
        let start = HEADER_SIZE + item.offset.get() as usize;
        &self.bytes[start..start + item.size.get() as usize]
    }

    /// Keys and data of a leaf's items, in order.
    pub fn iter_items(&self) -> impl DoubleEndedIterator<Item = (Key, &'a [u8])> + use<'a> {
        let node = *self;
        (0..self.nritems()).map(move |slot| (node.key(slot), node.item_data(slot)))
    }

    /// Bytes between the item headers and the item data of a leaf.
    pub fn leaf_free_space(&self) -> usize {
        let start = self
            .items()
            .last()
            .map_or(leaf_data_size(self.bytes.len()), |item| item.offset.get() as usize);
        start - self.nritems() * ITEM_HEADER_SIZE
    }

    /// The slot of `key`, or (`Err`) the slot to insert it at.
    pub fn search(&self, key: Key) -> Result<usize, usize> {
        let compare = |disk: &DiskKey| disk.get().cmp(&key);
        if self.is_leaf() {
            self.items().binary_search_by(|item| compare(&item.key))
        } else {
            self.key_pointers().binary_search_by(|pointer| compare(&pointer.key))
        }
    }

    /// The slot of the child of an internal node whose range covers `key`; 0 for keys before all.
    pub fn child_slot(&self, key: Key) -> usize {
        self.search(key).unwrap_or_else(|slot| slot.saturating_sub(1))
    }
}
