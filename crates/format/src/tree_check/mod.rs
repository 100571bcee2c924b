//! Whether the content of a tree block is valid: every item by itself and with its neighbour.
//!
//! [`Node::parse`] has ensured that items lie inside the block and that keys ascend. These checks
//! cover the content of items: keys that fit their type, lengths, alignment, ranges, modes, flags,
//! names and their hashes. They read one block only, so they do not cover references between
//! blocks.
//!
//! The measure is the kernel (Linux 6.18), which checks every block that it reads in the same way.
//! A stricter reader would lose data that the kernel still reads; a laxer one would have to check
//! later and everywhere. Two checks are left out on purpose: whether generations are newer than the
//! superblock's, which needs the running transaction, and inode flags that only matter to writers.
//! The only rules beyond the kernel's are for items that it never checks when reading, and no
//! writer has ever broken them: fixed lengths, and ranges that would overflow.
//!
//! Invariants:
//! * nothing is allocated unless there is an error;
//! * time is linear in the size of the block.

mod chunk;
mod dir;
mod extent;
mod file_extent;
mod inode;
mod internal;
mod quota;
mod root;
mod space;

use crate::checksum::ChecksumType;
use crate::feature::IncompatFlags;
use crate::node::{HEADER_FLAG_WRITTEN, ItemHeader};
use crate::objectid::{
    CHUNK_TREE, DATA_RELOC_TREE, DEV_TREE, EXTENT_TREE, FIRST_FREE, FS_TREE, ROOT_TREE,
};
use crate::superblock::Superblock;
use crate::{ItemType, Key, Node};

/// The properties of the file system that the checks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// A power of two.
    sectorsize: u32,
    nodesize: u32,
    checksum: ChecksumType,
    incompat: IncompatFlags,
}

impl Context {
    /// The context for the blocks of the file system that `superblock` describes.
    ///
    /// # Panics
    /// When the sector size or checksum type is one that [`Superblock::validate`] refuses.
    pub fn new(superblock: &Superblock) -> Self {
        assert!(superblock.sectorsize.get().is_power_of_two(), "validated when parsed");
        Self {
            sectorsize: superblock.sectorsize.get(),
            nodesize: superblock.nodesize.get(),
            checksum: superblock.checksum_type(),
            incompat: superblock.incompat_flags(),
        }
    }

    fn is_aligned(&self, bytes: u64) -> bool {
        bytes & (u64::from(self.sectorsize) - 1) == 0
    }

    fn has(&self, feature: IncompatFlags) -> bool {
        self.incompat.contains(feature)
    }
}

/// A tree block with invalid content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(*.slot, *.key))]
pub struct TreeCheckError {
    /// The item or key pointer; `None` for the block as a whole.
    pub slot: Option<usize>,
    /// Its key.
    pub key: Option<Key>,
    /// The problem.
    pub problem: String,
}

fn place(slot: Option<usize>, key: Option<Key>) -> String {
    match (slot, key) {
        (Some(slot), Some(key)) => format!("slot {slot} {key}: "),
        _ => String::new(),
    }
}

/// The problem of an item, in words.
type Verdict = Result<(), String>;

/// Turns a condition into a verdict.
#[inline]
fn ensure(sound: bool, problem: impl FnOnce() -> String) -> Verdict {
    if sound { Ok(()) } else { Err(problem()) }
}

/// An item being checked.
struct Item<'a> {
    key: Key,
    data: &'a [u8],
    /// The item before it in the leaf.
    previous: Option<Neighbour<'a>>,
    /// The tree that first owned the leaf.
    owner: u64,
}

/// The item before the one being checked; it was found sound.
#[derive(Clone, Copy)]
struct Neighbour<'a> {
    key: Key,
    data: &'a [u8],
}

impl<'a> Item<'a> {
    /// The neighbour if its objectid and type are this item's.
    fn previous_of_same_object(&self) -> Option<Neighbour<'a>> {
        self.previous.filter(|previous| {
            (previous.key.objectid, previous.key.item_type)
                == (self.key.objectid, self.key.item_type)
        })
    }

    fn ensure_len(&self, len_bytes: usize) -> Verdict {
        ensure(self.data.len() == len_bytes, || {
            format!("{} bytes where {len_bytes} belong", self.data.len())
        })
    }

    /// Items of an inode follow another of that inode: the inode item comes first.
    ///
    /// Leaves of other trees than subvolumes, such as log trees, may have only some of an inode's
    /// items.
    fn ensure_follows_its_inode(&self) -> Verdict {
        let Some(previous) = self.previous else { return Ok(()) };
        ensure(
            !is_plain_subvolume(self.owner) || previous.key.objectid == self.key.objectid,
            || format!("belongs to inode {} but follows {}", self.key.objectid, previous.key),
        )
    }
}

/// Whether `id` can be a subvolume's: narrower than [`crate::objectid::is_subvolume`], because the
/// top 16 bits are the level of a quota group.
fn is_plain_subvolume(id: u64) -> bool {
    id == FS_TREE || (FIRST_FREE..1 << 48).contains(&id)
}

/// Checks a tree block whose structure [`Node::parse`] has checked.
///
/// Returns the first problem, in the order of slots.
pub fn check_node(node: Node<'_>, context: &Context) -> Result<(), TreeCheckError> {
    let whole = |problem| TreeCheckError { slot: None, key: None, problem };
    let written = node.header().flags() & HEADER_FLAG_WRITTEN != 0;
    ensure(written, || "the flag WRITTEN is not set".into()).map_err(whole)?;
    if !node.is_leaf() {
        return internal::check(node, context);
    }
    let items = node.items();
    if items.is_empty() {
        return check_empty_leaf(node.header().owner.get()).map_err(whole);
    }
    check_items(node, items, context)
}

/// Some trees are never empty.
fn check_empty_leaf(owner: u64) -> Verdict {
    let never_empty =
        [ROOT_TREE, EXTENT_TREE, CHUNK_TREE, DEV_TREE, FS_TREE, DATA_RELOC_TREE].contains(&owner);
    ensure(!never_empty, || format!("tree {owner} is empty"))?;
    ensure(owner != 0, || "owner is 0".into())
}

fn check_items(
    node: Node<'_>,
    items: &[ItemHeader],
    context: &Context,
) -> Result<(), TreeCheckError> {
    let owner = node.header().owner.get();
    let mut previous = None;
    for (slot, header) in items.iter().enumerate() {
        let (key, data) = (header.key.get(), node.item_data(slot));
        check_item(&Item { key, data, previous, owner }, context)
            .map_err(|problem| TreeCheckError { slot: Some(slot), key: Some(key), problem })?;
        previous = Some(Neighbour { key, data });
    }
    Ok(())
}

/// Items of other types, including unknown ones, are left to their readers.
fn check_item(item: &Item<'_>, context: &Context) -> Verdict {
    match item.key.item_type {
        ItemType::INODE_ITEM => inode::check_inode_item(item),
        ItemType::INODE_REF => inode::check_inode_ref(item),
        ItemType::INODE_EXTREF => inode::check_inode_extref(item),
        ItemType::VERITY_DESC_ITEM => inode::check_verity_descriptor(item),
        ItemType::ORPHAN_ITEM => item.ensure_len(0),
        ItemType::DIR_ITEM | ItemType::DIR_INDEX | ItemType::XATTR_ITEM => {
            dir::check_entries(item, context)
        }
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => dir::check_log_range(item),
        ItemType::EXTENT_DATA => file_extent::check_file_extent(item, context),
        ItemType::EXTENT_CSUM => file_extent::check_csums(item, context),
        ItemType::ROOT_ITEM => root::check_root_item(item, context),
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => root::check_root_ref(item),
        ItemType::UUID_KEY_SUBVOL | ItemType::UUID_KEY_RECEIVED_SUBVOL => root::check_uuid(item),
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent::check_extent(item, context),
        ItemType::TREE_BLOCK_REF
        | ItemType::SHARED_BLOCK_REF
        | ItemType::SHARED_DATA_REF
        | ItemType::EXTENT_DATA_REF => extent::check_keyed_ref(item, context),
        ItemType::BLOCK_GROUP_ITEM => space::check_block_group(item),
        ItemType::FREE_SPACE_INFO => space::check_free_space_info(item, context),
        ItemType::FREE_SPACE_EXTENT => space::check_free_space_extent(item, context),
        ItemType::FREE_SPACE_BITMAP => space::check_free_space_bitmap(item, context),
        ItemType::CHUNK_ITEM => chunk::check_chunk_item(item, context),
        ItemType::DEV_ITEM => chunk::check_dev_item(item),
        ItemType::DEV_EXTENT => chunk::check_dev_extent(item, context),
        ItemType::RAID_STRIPE => chunk::check_raid_stripe(item, context),
        ItemType::QGROUP_STATUS
        | ItemType::QGROUP_INFO
        | ItemType::QGROUP_LIMIT
        | ItemType::QGROUP_RELATION => quota::check(item),
        _ => Ok(()),
    }
}
