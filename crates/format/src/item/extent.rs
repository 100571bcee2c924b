//! Extents and their references.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, read_exact_item, read_prefix};
use crate::key::{DiskKey, ItemType, Key};
use crate::name_hash;

/// Extent flag: holds file data.
pub const EXTENT_FLAG_DATA: u64 = 1;
/// Extent flag: holds a tree block.
pub const EXTENT_FLAG_TREE_BLOCK: u64 = 1 << 1;
/// Extent flag: the block's references count its address and not its owner.
pub const EXTENT_FLAG_FULL_BACKREF: u64 = 1 << 8;

/// The start of every extent item (`struct btrfs_extent_item`, 24 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentItem {
    /// Number of references.
    pub refs: U64,
    /// The transaction that allocated it.
    pub generation: U64,
    /// `EXTENT_FLAG_*`.
    pub flags: U64,
}

const _: () = assert!(size_of::<ExtentItem>() == 24);

/// First key and level of a tree block, without skinny metadata (`struct btrfs_tree_block_info`,
/// 18 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TreeBlockInfo {
    /// First key in the block when it was allocated.
    pub key: DiskKey,
    /// Level of the block.
    pub level: u8,
}

const _: () = assert!(size_of::<TreeBlockInfo>() == 18);

/// A reference from a file (`struct btrfs_extent_data_ref`, 28 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentDataRef {
    /// The tree.
    pub root: U64,
    /// The inode.
    pub objectid: U64,
    /// File offset minus offset in the extent, so that all slices of one write count together.
    pub offset: U64,
    /// Number of file extents.
    pub count: U32,
}

const _: () = assert!(size_of::<ExtentDataRef>() == 28);

impl ExtentDataRef {
    /// Key offset of the keyed form; the order of inline ones.
    pub fn hash(&self) -> u64 {
        name_hash::extent_data_ref(self.root.get(), self.objectid.get(), self.offset.get())
    }
}

/// References from a leaf (`struct btrfs_shared_data_ref`, 4 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SharedDataRef {
    /// Number of file extents in the leaf.
    pub count: U32,
}

const _: () = assert!(size_of::<SharedDataRef>() == 4);

/// The first owner of a data extent (`struct btrfs_extent_owner_ref`, 8 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExtentOwnerRef {
    /// The subvolume that the space is charged to.
    pub root_id: U64,
}

const _: () = assert!(size_of::<ExtentOwnerRef>() == 8);

/// A back reference of any kind, inline or keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackRef {
    /// A tree block is referred to by tree `root`.
    TreeBlock {
        /// Id of the tree.
        root: u64,
    },
    /// A tree block is referred to by the block at `parent`.
    SharedBlock {
        /// Logical address of the parent.
        parent: u64,
    },
    /// A data extent is referred to by a file.
    Data {
        /// Id of the tree.
        root: u64,
        /// Number of the inode.
        objectid: u64,
        /// File offset minus offset in the extent (wrapping).
        offset: u64,
        /// Number of file extents.
        count: u32,
    },
    /// A data extent is referred to by the leaf at `parent`.
    SharedData {
        /// Logical address of the leaf.
        parent: u64,
        /// Number of file extents.
        count: u32,
    },
    /// A data extent was allocated by `root`; counts no reference.
    Owner {
        /// Id of the subvolume.
        root: u64,
    },
}

impl BackRef {
    /// Reads a keyed back reference.
    pub fn parse_keyed(key: Key, bytes: &[u8]) -> Result<Self, FormatError> {
        match key.item_type {
            ItemType::TREE_BLOCK_REF | ItemType::SHARED_BLOCK_REF if !bytes.is_empty() => {
                Err(FormatError::WrongSize {
                    structure: "keyed tree back reference",
                    needed: 0,
                    available: bytes.len(),
                })
            }
            ItemType::TREE_BLOCK_REF => Ok(Self::TreeBlock { root: key.offset }),
            ItemType::SHARED_BLOCK_REF => Ok(Self::SharedBlock { parent: key.offset }),
            ItemType::EXTENT_DATA_REF => Ok(Self::from(read_exact_item::<ExtentDataRef>(bytes)?)),
            ItemType::SHARED_DATA_REF => {
                let item = read_exact_item::<SharedDataRef>(bytes)?;
                Ok(Self::SharedData { parent: key.offset, count: item.count.get() })
            }
            other => {
                let problem = format!("{other} is no kind of back reference");
                Err(FormatError::invalid("back reference", problem))
            }
        }
    }

    /// The item type that it has inline and in a key.
    pub const fn item_type(&self) -> ItemType {
        match self {
            Self::TreeBlock { .. } => ItemType::TREE_BLOCK_REF,
            Self::SharedBlock { .. } => ItemType::SHARED_BLOCK_REF,
            Self::Data { .. } => ItemType::EXTENT_DATA_REF,
            Self::SharedData { .. } => ItemType::SHARED_DATA_REF,
            Self::Owner { .. } => ItemType::EXTENT_OWNER_REF,
        }
    }

    /// The number of the extent's references that it counts.
    pub const fn count(&self) -> u32 {
        match self {
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => 1,
            Self::Data { count, .. } | Self::SharedData { count, .. } => *count,
            Self::Owner { .. } => 0,
        }
    }

    /// The order of inline references of one type, descending; also the keyed form's offset.
    pub fn sequence(&self) -> u64 {
        match *self {
            Self::TreeBlock { root } | Self::Owner { root } => root,
            Self::SharedBlock { parent } | Self::SharedData { parent, .. } => parent,
            Self::Data { root, objectid, offset, .. } => {
                name_hash::extent_data_ref(root, objectid, offset)
            }
        }
    }

    /// Bytes that the inline form takes, its type byte included.
    pub const fn inline_len_bytes(&self) -> usize {
        match self {
            Self::TreeBlock { .. } | Self::SharedBlock { .. } | Self::Owner { .. } => 9,
            Self::Data { .. } => 1 + size_of::<ExtentDataRef>(),
            Self::SharedData { .. } => 9 + size_of::<SharedDataRef>(),
        }
    }

    /// Appends the inline form.
    pub fn write_inline(&self, out: &mut Vec<u8>) {
        out.push(self.item_type().0);
        match *self {
            Self::TreeBlock { root } | Self::Owner { root } => out.extend(root.to_le_bytes()),
            Self::SharedBlock { parent } => out.extend(parent.to_le_bytes()),
            Self::Data { root, objectid, offset, count } => {
                out.extend(root.to_le_bytes());
                out.extend(objectid.to_le_bytes());
                out.extend(offset.to_le_bytes());
                out.extend(count.to_le_bytes());
            }
            Self::SharedData { parent, count } => {
                out.extend(parent.to_le_bytes());
                out.extend(count.to_le_bytes());
            }
        }
    }
}

impl From<&ExtentDataRef> for BackRef {
    fn from(item: &ExtentDataRef) -> Self {
        Self::Data {
            root: item.root.get(),
            objectid: item.objectid.get(),
            offset: item.offset.get(),
            count: item.count.get(),
        }
    }
}

/// An inline back reference and its offset in the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBackRef {
    /// Offset of the type byte from the start of the item's data.
    pub item_offset: usize,
    /// The reference.
    pub back_ref: BackRef,
}

/// A parsed `EXTENT_ITEM` or `METADATA_ITEM`.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    /// Count, generation and flags.
    pub item: &'a ExtentItem,
    /// Present for a tree block under an `EXTENT_ITEM` key.
    pub tree_block_info: Option<&'a TreeBlockInfo>,
    inline: &'a [u8],
    inline_offset: usize,
}

impl<'a> Extent<'a> {
    /// Reads the item with this key.
    pub fn parse(key: Key, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (item, rest) = read_prefix::<ExtentItem>(bytes)?;
        let with_info = key.item_type == ItemType::EXTENT_ITEM
            && item.flags.get() & EXTENT_FLAG_TREE_BLOCK != 0;
        let (tree_block_info, inline) = if with_info {
            let (info, inline) = read_prefix::<TreeBlockInfo>(rest)?;
            (Some(info), inline)
        } else {
            (None, rest)
        };
        Ok(Self { item, tree_block_info, inline, inline_offset: bytes.len() - inline.len() })
    }

    /// Whether it holds a tree block.
    pub fn is_tree_block(&self) -> bool {
        self.item.flags.get() & EXTENT_FLAG_TREE_BLOCK != 0
    }

    /// The inline back references.
    pub fn back_refs(&self) -> BackRefs<'a> {
        BackRefs { bytes: self.inline, item_offset: self.inline_offset }
    }
}

/// Iterates over inline back references. Ends after an error.
#[derive(Clone, Debug)]
pub struct BackRefs<'a> {
    bytes: &'a [u8],
    item_offset: usize,
}

impl BackRefs<'_> {
    fn parse_next(&mut self) -> Result<InlineBackRef, FormatError> {
        let (kind, rest) = read_prefix::<u8>(self.bytes)?;
        let (back_ref, rest) = match ItemType(*kind) {
            ItemType::EXTENT_DATA_REF => {
                let (item, rest) = read_prefix::<ExtentDataRef>(rest)?;
                (BackRef::from(item), rest)
            }
            ItemType::SHARED_DATA_REF => {
                let (parent, rest) = read_prefix::<U64>(rest)?;
                let (item, rest) = read_prefix::<SharedDataRef>(rest)?;
                (BackRef::SharedData { parent: parent.get(), count: item.count.get() }, rest)
            }
            ItemType::TREE_BLOCK_REF => {
                let (root, rest) = read_prefix::<U64>(rest)?;
                (BackRef::TreeBlock { root: root.get() }, rest)
            }
            ItemType::SHARED_BLOCK_REF => {
                let (parent, rest) = read_prefix::<U64>(rest)?;
                (BackRef::SharedBlock { parent: parent.get() }, rest)
            }
            ItemType::EXTENT_OWNER_REF => {
                let (root, rest) = read_prefix::<U64>(rest)?;
                (BackRef::Owner { root: root.get() }, rest)
            }
            other => {
                let problem = format!("unknown inline type {other}");
                return Err(FormatError::invalid("back reference", problem));
            }
        };
        let item_offset = self.item_offset;
        self.item_offset += self.bytes.len() - rest.len();
        self.bytes = rest;
        Ok(InlineBackRef { item_offset, back_ref })
    }
}

impl Iterator for BackRefs<'_> {
    type Item = Result<InlineBackRef, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let next = self.parse_next();
        if next.is_err() {
            self.bytes = &[];
        }
        Some(next)
    }
}
