//! The extents of a range of logical addresses, in order, and what refers to each.
//!
//! # Invariants
//! - A walk reads as its caller asks for more, and holds no lock in between. A walk that starts where
//!   an extent of another ended goes on with the next one.
//! - A walk finds what the tree has. The delayed references of a running transaction are not in it.
//! - References are read one by one, however many an extent has.

use std::ops::Range;
use std::vec;

use larder_btree::{Range as Items, Readahead, TreeView};
use larder_format::item::{BackRef, EXTENT_FLAG_FULL_BACKREF, Extent};
use larder_format::objectid::EXTENT_TREE;
use larder_format::{FormatError, ItemType, Key, Logical};

use super::Referrer;
use crate::error::{Error, Result};

/// An extent of the extent tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundExtent {
    /// Its addresses.
    pub range: Range<u64>,
    /// The transaction that allocated it.
    pub generation: u64,
    /// Whether it is a tree block, not data.
    pub is_tree_block: bool,
    /// The level of a tree block; 0 for data.
    pub(crate) level: u8,
    /// Whether the references to what a tree block refers to are by its address.
    pub(crate) is_full: bool,
    /// How many references it has.
    refs: u64,
    /// The references in its item. Others have keys of their own.
    inline: Vec<BackRef>,
}

impl FoundExtent {
    fn parse(key: Key, data: &[u8], nodesize: u32) -> Result<Self, FormatError> {
        let extent = Extent::parse(key, data)?;
        let is_short = key.item_type == ItemType::METADATA_ITEM;
        let len_bytes = if is_short { u64::from(nodesize) } else { key.offset };
        let end = key.objectid.checked_add(len_bytes);
        let inline = extent.back_refs().map(|inline| Ok(inline?.back_ref));
        Ok(Self {
            range: key.objectid..end.ok_or_else(|| leaves("the address space"))?,
            generation: extent.item.generation.get(),
            is_tree_block: is_short || extent.is_tree_block(),
            level: match extent.tree_block_info {
                Some(info) => info.level,
                None if is_short => key.offset as u8,
                None => 0,
            },
            is_full: extent.item.flags.get() & EXTENT_FLAG_FULL_BACKREF != 0,
            refs: extent.item.refs.get(),
            inline: inline.collect::<Result<_, FormatError>>()?,
        })
    }

    /// One that the extent tree does not have yet.
    pub(super) fn unwritten(range: Range<u64>, generation: u64, is_tree_block: bool) -> Self {
        let (level, is_full, refs, inline) = (0, false, 0, Vec::new());
        Self { range, generation, is_tree_block, level, is_full, refs, inline }
    }

    /// Bytes of it.
    pub fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What refers to it, in the order of the extent tree, which is `tree`.
    pub fn references(&self, tree: &TreeView) -> BackReferences {
        let counting = self.inline.iter().filter(|inline| Referrer::of(inline).is_some());
        let inline_refs: u64 = counting.map(|inline| u64::from(inline.count())).sum();
        let keyed = (inline_refs < self.refs).then(|| {
            let key = |item_type, offset| Key::new(self.range.start, item_type, offset);
            let first = key(ItemType::TREE_BLOCK_REF, 0);
            tree.range(first..=key(ItemType::SHARED_DATA_REF, u64::MAX), Readahead::None)
        });
        BackReferences { inline: self.inline.clone().into_iter(), keyed }
    }
}

/// The references to an extent.
#[derive(Debug)]
pub struct BackReferences {
    inline: vec::IntoIter<BackRef>,
    keyed: Option<Items>,
}

impl Iterator for BackReferences {
    type Item = Result<BackRef>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(inline) = self.inline.next() {
            return Some(Ok(inline));
        }
        let is_reference = |key: Key| {
            matches!(
                key.item_type,
                ItemType::TREE_BLOCK_REF
                    | ItemType::EXTENT_DATA_REF
                    | ItemType::SHARED_BLOCK_REF
                    | ItemType::SHARED_DATA_REF
            )
        };
        let keyed = self.keyed.as_mut()?;
        loop {
            match keyed.next_item() {
                Ok(None) => return None,
                Ok(Some((key, _))) if !is_reference(key) => {}
                Ok(Some((key, data))) => {
                    let bad = |problem| Error::item(EXTENT_TREE, key, problem);
                    return Some(BackRef::parse_keyed(key, data).map_err(bad));
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

/// The extents that start in `range`, in the extent tree `tree`. One that passes the end of the
/// range is an error.
pub fn extents(
    tree: &TreeView,
    nodesize: u32,
    range: Range<u64>,
) -> impl Iterator<Item = Result<FoundExtent>> + use<> {
    let key = |logical| Key::new(logical, ItemType(0), 0);
    let items = tree.range(key(range.start)..key(range.end), Readahead::Forward);
    let found = move |key: Key, data: &[u8]| {
        let within = |extent: &FoundExtent| {
            if extent.range.end <= range.end { Ok(()) } else { Err(leaves("its block group")) }
        };
        let extent = FoundExtent::parse(key, data, nodesize);
        let extent = extent.and_then(|extent| within(&extent).map(|()| extent));
        extent.map_err(|problem| Error::item(EXTENT_TREE, key, problem))
    };
    items.filter_map(move |item| match item {
        Ok(item) => is_extent(item.key()).then(|| found(item.key(), &item)),
        Err(error) => Some(Err(error.into())),
    })
}

/// The extent that contains `logical`, in the extent tree `tree`.
pub fn extent_at(tree: &TreeView, nodesize: u32, logical: Logical) -> Result<Option<FoundExtent>> {
    let mut cursor = tree.cursor(Readahead::None);
    cursor.seek_last(Key::new(logical.0, ItemType::METADATA_ITEM, u64::MAX))?;
    // After an extent come its references, and a block group may begin at the same address.
    while cursor.key().is_some_and(|key| !is_extent(key)) {
        cursor.prev()?;
    }
    let Some((key, data)) = cursor.item() else { return Ok(None) };
    let extent = FoundExtent::parse(key, data, nodesize);
    let extent = extent.map_err(|problem| Error::item(EXTENT_TREE, key, problem))?;
    Ok(Some(extent).filter(|extent| extent.range.contains(&logical.0)))
}

fn is_extent(key: Key) -> bool {
    matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM)
}

fn leaves(what: &'static str) -> FormatError {
    FormatError::invalid("extent", format!("it leaves {what}"))
}
