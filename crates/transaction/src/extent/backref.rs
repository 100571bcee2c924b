//! What refers to an extent: from its back references up, to leaves and to the trees that have them.
//!
//! # Invariants
//! - All answers are of one state: a committed one of which no space is used again meanwhile, or the
//!   running transaction while no thread is joined. Delayed references count in the latter.
//! - Only the trees that back references name are searched, each on the way to one key.
//! - A tree that is being deleted still leads to those that share its blocks, as far as it is there.
//!   It is in no answer itself.
//! - Each step leads one level up, and no block is visited twice: no image makes a walk endless.

use std::collections::{BTreeMap, HashSet};
use std::iter;

use larder_btree::{Block, Expected, Readahead, Tree, TreeRoot, TreeView};
use larder_format::item::{FileExtent, MAX_COMPRESSED_EXTENT_BYTES, RootItem};
use larder_format::node::MAX_LEVELS;
use larder_format::objectid::{EXTENT_TREE, FS_TREE, ROOT_TREE, is_subvolume};
use larder_format::{FormatError, ItemType, Key, Logical};

use super::{FoundExtent, Referrer, extent_at};
use crate::error::{Error, Result};
use crate::refs::{DelayedRefs, ExtentKind};

/// A tree that may refer to extents.
pub(crate) struct ReferringTree {
    view: TreeView,
    /// Its part before this key is gone.
    first: Key,
    /// The lowest level of the blocks on the way to that key: those lack their part before it.
    first_level: u8,
    is_deleted: bool,
}

/// From where a tree block is referred to.
pub(crate) enum Parent {
    /// A block above it.
    Block(Block),
    /// A subvolume, of which it is the root.
    Subvolume(u64),
}

/// Finds the tree of an id; `None` if there is none.
type FindTree<'m> = Box<dyn Fn(u64) -> Result<Option<ReferringTree>> + 'm>;

/// What refers to extents, in one state of a file system.
pub struct Backrefs<'m> {
    extents: TreeView,
    nodesize: u32,
    find_tree: FindTree<'m>,
    /// The references that the extent tree lacks, and the transaction in which they are.
    delayed: Option<(&'m DelayedRefs, u64)>,
}

impl ReferringTree {
    pub(crate) fn new(item: &RootItem, view: TreeView) -> Self {
        let is_deleted = item.refs.get() == 0;
        let first = if is_deleted { item.drop_progress.get() } else { Key::MIN };
        Self { view, first, first_level: item.drop_level, is_deleted }
    }
}

impl Backrefs<'static> {
    /// Those of the committed state that has this root tree.
    pub fn committed(root_tree: Tree) -> Result<Self> {
        let missing = || Error::MissingItem {
            tree: ROOT_TREE,
            key: Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0),
        };
        let (_, extents) = committed_tree(&root_tree, EXTENT_TREE)?.ok_or_else(missing)?;
        let nodesize = root_tree.cache().nodesize() as u32;
        let find_tree = move |id| {
            let found = committed_tree(&root_tree, id)?;
            Ok(found.map(|(item, view)| ReferringTree::new(&item, view)))
        };
        Ok(Self { extents, nodesize, find_tree: Box::new(find_tree), delayed: None })
    }
}

/// The root item and the tree of this id in the committed state that has this root tree.
pub(crate) fn committed_tree(root_tree: &Tree, id: u64) -> Result<Option<(RootItem, TreeView)>> {
    let mut cursor = root_tree.cursor(Readahead::None);
    cursor.seek_last(Key::new(id, ItemType::ROOT_ITEM, u64::MAX))?;
    let is_it = |key: Key| (key.objectid, key.item_type) == (id, ItemType::ROOT_ITEM);
    let Some((key, data)) = cursor.item().filter(|(key, _)| is_it(*key)) else { return Ok(None) };
    let item = RootItem::parse(data).map_err(|problem| Error::item(ROOT_TREE, key, problem))?;
    let tree = Tree::new(root_tree.cache().clone(), TreeRoot::of_item(id, &item));
    Ok(Some((item, TreeView::Committed(tree))))
}

impl<'m> Backrefs<'m> {
    /// Those of the transaction `generation`. No thread is joined as long as the result lives.
    pub(crate) fn running(
        extents: TreeView,
        nodesize: u32,
        find_tree: FindTree<'m>,
        delayed: &'m DelayedRefs,
        generation: u64,
    ) -> Self {
        Self { extents, nodesize, find_tree, delayed: Some((delayed, generation)) }
    }

    /// The extent that contains `logical`.
    pub fn extent_at(&self, logical: Logical) -> Result<Option<FoundExtent>> {
        let stored = extent_at(&self.extents, self.nodesize, logical)?;
        let Some((delayed, generation)) = self.delayed.filter(|_| stored.is_none()) else {
            return Ok(stored);
        };
        let found = delayed.at_or_before(logical).filter(|(start, head)| {
            head.is_new && head.net() > 0 && logical.0 - start.0 < head.len_bytes
        });
        Ok(found.map(|(start, head)| {
            let is_tree_block = head.kind != ExtentKind::Data;
            FoundExtent::unwritten(start.0..start.0 + head.len_bytes, generation, is_tree_block)
        }))
    }

    /// What refers to an extent directly, each referrer once.
    pub fn referrers(
        &self,
        extent: &FoundExtent,
    ) -> Result<Box<dyn Iterator<Item = Result<Referrer>>>> {
        let stored = extent.references(&self.extents);
        let head = self
            .delayed
            .and_then(|(delayed, _)| delayed.lock_head(Logical(extent.range.start)).pending());
        let Some(head) = head else {
            let referrer = |back_ref: Result<_>| back_ref.map(|it| Referrer::of(&it)).transpose();
            return Ok(Box::new(stored.filter_map(referrer)));
        };
        let mut counts = BTreeMap::new();
        for back_ref in stored {
            let back_ref = back_ref?;
            if let Some(referrer) = Referrer::of(&back_ref) {
                *counts.entry(referrer).or_insert(0) += i64::from(back_ref.count());
            }
        }
        for (referrer, count) in &mut counts {
            *count += head.change_of(*referrer);
        }
        counts.extend(
            head.additions()
                .map(|(referrer, count)| {
                    let stored = counts.get(&referrer).copied();
                    (referrer, stored.unwrap_or(count.cast_signed()))
                })
                .collect::<Vec<_>>(),
        );
        let there = counts.into_iter().filter(|(_, count)| *count > 0);
        Ok(Box::new(there.map(|(referrer, _)| Ok(referrer))))
    }

    /// The leaves in which `referrer` has file extents of the data `extent`.
    pub fn leaves(
        &self,
        extent: &FoundExtent,
        referrer: Referrer,
    ) -> Result<Box<dyn Iterator<Item = Result<Block>>>> {
        match referrer {
            Referrer::File { root, inode, offset } => {
                let Some(tree) = self.tree(root)? else { return Ok(Box::new(iter::empty())) };
                Ok(Box::new(tree.leaves_with(extent, inode, offset)))
            }
            Referrer::Leaf { parent } => Ok(Box::new(iter::once(self.block(Logical(parent), 0)))),
            _ => Err(Error::extent(Logical(extent.range.start), "a tree block refers to data")),
        }
    }

    /// Whether `is_it` is true for any tree that has `block`, which belongs to subvolumes. Calls it
    /// for each of these trees until it is, and perhaps several times for some.
    pub fn any_tree(&self, block: &Block, is_it: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let mut met = HashSet::from([block.logical()]);
        let mut pending = vec![block.clone()];
        while let Some(block) = pending.pop() {
            let missing = || Error::extent(block.logical(), "a tree has it but it has no item");
            let extent = self.extent_at(block.logical())?.ok_or_else(missing)?;
            for referrer in self.referrers(&extent)? {
                let parent = match referrer? {
                    Referrer::Tree { root } => {
                        let Some(tree) = self.tree(root)? else { continue };
                        if tree.view.root().logical == block.logical() {
                            if !tree.is_deleted && is_it(root) {
                                return Ok(true);
                            }
                            continue;
                        }
                        tree.parent_of(&block)?
                    }
                    // The root of an unfinished relocation refers to itself.
                    Referrer::Block { parent } if parent == block.logical().0 => None,
                    Referrer::Block { parent } => {
                        Some(self.block(Logical(parent), block.level() + 1)?)
                    }
                    _ => {
                        return Err(Error::extent(
                            block.logical(),
                            "a file refers to a tree block",
                        ));
                    }
                };
                pending.extend(parent.filter(|parent| met.insert(parent.logical())));
            }
        }
        Ok(false)
    }

    /// From where the tree block `block` is referred to by this referrer; `None` if the referrer
    /// does not have it.
    pub(crate) fn parent(&self, block: &Block, referrer: Referrer) -> Result<Option<Parent>> {
        match referrer {
            Referrer::Tree { root } => {
                let Some(tree) = self.tree(root)? else { return Ok(None) };
                if tree.view.root().logical == block.logical() {
                    return Ok(Some(Parent::Subvolume(root)));
                }
                Ok(tree.parent_of(block)?.map(Parent::Block))
            }
            Referrer::Block { parent } if parent == block.logical().0 => Ok(None),
            Referrer::Block { parent } => {
                let parent = self.block(Logical(parent), block.level() + 1)?;
                Ok(Some(Parent::Block(parent)))
            }
            _ => Err(Error::extent(block.logical(), "a file refers to a tree block")),
        }
    }

    /// The references to an extent, and how often each counts. No reference is delayed.
    pub(crate) fn counted(&self, extent: &FoundExtent) -> Result<Vec<(Referrer, u32)>> {
        let stored = extent.references(&self.extents);
        let counted = stored.map(|back_ref| {
            back_ref.map(|it| Referrer::of(&it).map(|referrer| (referrer, it.count())))
        });
        counted.filter_map(Result::transpose).collect()
    }

    /// The tree block of an extent, which is one of subvolumes or of this `tree`.
    pub(crate) fn tree_block(&self, extent: &FoundExtent, tree: u64) -> Result<Block> {
        self.block_of(tree, Logical(extent.range.start), extent.level)
    }

    /// The blocks of a subvolume of which a part is deleted already: for each, its first child that
    /// is left.
    pub(crate) fn partly_deleted(&self, subvolume: u64) -> Result<Vec<(Logical, usize)>> {
        let mut partly = Vec::new();
        let Some(tree) = self.tree(subvolume)?.filter(|tree| tree.first != Key::MIN) else {
            return Ok(partly);
        };
        for level in tree.first_level.max(1)..=tree.view.root().level {
            if let Some(block) = tree.view.block_at(tree.first, level)? {
                partly.push((block.logical(), block.node().child_slot(tree.first)));
            }
        }
        Ok(partly)
    }

    /// Whether the subvolume is there, and not being deleted.
    pub fn has_subvolume(&self, id: u64) -> Result<bool> {
        Ok(self.tree(id)?.is_some_and(|tree| !tree.is_deleted))
    }

    fn tree(&self, id: u64) -> Result<Option<ReferringTree>> {
        if is_subvolume(id) { (self.find_tree)(id) } else { Ok(None) }
    }

    /// The tree block at `logical`, as its extent describes it.
    fn block(&self, logical: Logical, level: u8) -> Result<Block> {
        // Blocks of all subvolumes are alike.
        self.block_of(FS_TREE, logical, level)
    }

    fn block_of(&self, tree: u64, logical: Logical, level: u8) -> Result<Block> {
        let extent = self.extent_at(logical)?.filter(|extent| {
            extent.is_tree_block
                && extent.range.start == logical.0
                && usize::from(level) < MAX_LEVELS
        });
        let missing = || Error::extent(logical, "a reference names it but there is no such block");
        let generation = extent.ok_or_else(missing)?.generation;
        let expected = Expected { tree, logical, generation, level, first_key: None };
        self.extents.look(&expected).map_err(|mut error| {
            error.tree = EXTENT_TREE;
            error.into()
        })
    }
}

impl ReferringTree {
    /// The leaves that have file extents of `extent` near the place of the file where it would
    /// begin, which wraps around.
    fn leaves_with(
        &self,
        extent: &FoundExtent,
        inode: u64,
        origin: u64,
    ) -> impl Iterator<Item = Result<Block>> + use<> {
        let (tree, start) = (self.view.root().tree, extent.range.start);
        // The data of a compressed extent may be longer.
        let len_bytes = (extent.range.end - start).max(MAX_COMPRESSED_EXTENT_BYTES);
        let (first, last) = match origin.checked_add(len_bytes) {
            Some(last) => (origin, last),
            None => (0, origin.wrapping_add(len_bytes)),
        };
        let key = |offset| Key::new(inode, ItemType::EXTENT_DATA, offset);
        let range = key(first).max(self.first)..=key(last);
        let mut items = self.view.range(range, Readahead::None);
        let mut before = None;
        iter::from_fn(move || {
            loop {
                let item = match items.next()? {
                    Ok(item) => item,
                    Err(error) => return Some(Err(error.into())),
                };
                match refers_to(&item, start) {
                    Err(problem) => return Some(Err(Error::item(tree, item.key(), problem))),
                    Ok(true) if before != Some(item.leaf().logical()) => {
                        before = Some(item.leaf().logical());
                        return Some(Ok(item.leaf().clone()));
                    }
                    Ok(_) => {}
                }
            }
        })
    }

    /// The block of this tree that has a pointer to `block`, if the tree has it.
    fn parent_of(&self, block: &Block) -> Result<Option<Block>> {
        let Some(first) = block.node().first_key() else { return Ok(None) };
        let key = first.max(self.first);
        let parent = self.view.block_at(key, block.level() + 1)?;
        Ok(parent.filter(|parent| {
            let node = parent.node();
            node.key_pointers()[node.child_slot(key)].blockptr() == block.logical()
        }))
    }
}

fn refers_to(item: &[u8], start: u64) -> Result<bool, FormatError> {
    Ok(match FileExtent::parse(item)? {
        FileExtent::Regular { extent, .. } => extent.disk_bytenr.get() == start,
        FileExtent::Inline { .. } => false,
    })
}
