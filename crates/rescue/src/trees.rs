//! The trees of a damaged file system, put together again.
//!
//! The root tree comes first: its items name the roots of all others. Where they are lost, a tree
//! is known by the blocks that it owns, and a new item names its root.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use larder_format::item::{Extent, RootItem};
use larder_format::objectid::{
    CSUM_TREE, EXTENT_TREE, FIRST_FREE, ROOT_TREE, TREE_LOG, TREE_RELOC, is_subvolume,
};
use larder_format::{ItemType, Key, Logical, Node, Uuid};
use larder_volume::StateRoot;
use zerocopy::{FromZeros, IntoBytes};

use crate::attach::{Attached, InUse, Source, age, attach};
use crate::blocks::{Block, Blocks, Pointer};
use crate::missing::Missing;
use crate::stand_ins::Stock;
use crate::states::named;

/// The root tree, put together.
pub(crate) struct Roots {
    attached: Attached,
    /// All items, except the roots of logs and of what a balance moves.
    items: BTreeMap<Key, Vec<u8>>,
    /// The newest item of each tree.
    roots: BTreeMap<u64, (Key, RootItem)>,
    in_use: InUse,
    /// The ranges of keys of the extent tree that are left.
    told: Vec<Range<Key>>,
}

impl Roots {
    /// Puts the root tree together.
    pub(crate) fn of(blocks: &Blocks, missing: &mut Missing<'_>) -> Self {
        let (newest, _) = named(&blocks.evidence.superblock)[0];
        let root = Some(newest).filter(|root| blocks.has(root));
        let attached = attach(blocks, missing, root, &[own(ROOT_TREE)], &InUse::new());
        let mut items = BTreeMap::new();
        let mut roots = BTreeMap::new();
        attached.for_each_item(blocks, &mut |key, data| {
            let is_root = key.item_type == ItemType::ROOT_ITEM;
            if is_root && [TREE_LOG, TREE_RELOC].contains(&key.objectid) {
                return;
            }
            items.insert(key, data.to_vec());
            if let (ItemType::ROOT_ITEM, Ok(item)) = (key.item_type, RootItem::parse(data)) {
                roots.insert(key.objectid, (key, item));
            }
        });
        let (in_use, told) = (InUse::new(), Vec::new());
        let mut this = Self { attached, items, roots, in_use, told };
        let mut in_use = InUse::new();
        let extents = this.tree(blocks, missing, EXTENT_TREE);
        extents.for_each_item(blocks, &mut |key, data| {
            let is_block = match key.item_type {
                ItemType::METADATA_ITEM => true,
                ItemType::EXTENT_ITEM => is_tree_block(key, data),
                _ => false,
            };
            if is_block {
                in_use.insert(key.objectid);
            }
        });
        this.in_use = in_use;
        this.told = extents.pieces.iter().map(|piece| piece.range.clone()).collect();
        this
    }

    /// The trees of files that there are or may have been.
    pub(crate) fn subvolumes(&self, blocks: &Blocks) -> BTreeSet<u64> {
        let is_kept = |(_, item): &&(Key, RootItem)| item.refs.get() > 0;
        let named = self.roots.iter().filter(|(_, it)| is_kept(it)).map(|(tree, _)| *tree);
        let is_lost = |tree: &u64| {
            let key = Key::new(*tree, ItemType::ROOT_ITEM, 0);
            !self.roots.contains_key(tree) && !self.attached.is_certain(key)
        };
        let owners: BTreeSet<u64> =
            blocks.all().iter().map(|block| block.owner).filter(is_lost).collect();
        let owners = owners.into_iter().filter(|tree| is_subvolume(*tree));
        let owners = owners.filter(|tree| self.may_be_in_use(blocks, *tree));
        named.filter(|tree| is_subvolume(*tree)).chain(owners).collect()
    }

    /// Whether one of the highest blocks of a tree is in use, as far as that is known: those of a
    /// subvolume that was deleted are not.
    fn may_be_in_use(&self, blocks: &Blocks, tree: u64) -> bool {
        let own = || blocks.all().iter().filter(|block| block.owner == tree);
        let level = own().map(|block| block.level).max();
        let mut highest = own().filter(|block| Some(block.level) == level);
        highest.any(|block| {
            let key = Key::new(block.logical, ItemType::EXTENT_ITEM, 0);
            let is_told = self.told.iter().any(|range| range.contains(&key));
            !is_told || self.in_use.contains(&block.logical)
        })
    }

    /// Puts a tree together.
    pub(crate) fn tree(&self, blocks: &Blocks, missing: &mut Missing<'_>, tree: u64) -> Attached {
        match self.known(tree) {
            Some(root) => {
                let there = Some(root).filter(|root| blocks.has(root));
                let sources = self.sources(tree, root.generation);
                attach(blocks, missing, there, &sources, &self.in_use)
            }
            None => {
                let root = newest_root(blocks, tree, &self.in_use);
                let sources = self.sources(tree, u64::MAX);
                attach(blocks, missing, root, &sources, &self.in_use)
            }
        }
    }

    /// The root of a tree, if the root tree is not in doubt there.
    fn known(&self, tree: u64) -> Option<Pointer> {
        let (key, item) = self.roots.get(&tree)?;
        self.attached.is_certain(*key).then(|| pointer(item))
    }

    /// The blocks that may belong to a tree: its own until a generation, and those of the
    /// subvolumes that it is a snapshot of until that was made.
    fn sources(&self, tree: u64, until: u64) -> Vec<Source> {
        let ids: HashMap<Uuid, u64> =
            self.roots.iter().map(|(tree, (_, item))| (item.uuid(), *tree)).collect();
        let mut sources = vec![Source { owner: tree, until }];
        let (mut at, mut until) = (tree, until);
        while let Some((_, item)) = self.roots.get(&at).filter(|_| is_subvolume(tree)) {
            let parent = item.parent_uuid();
            let Some(parent) = ids.get(&parent).filter(|_| parent != Uuid::nil()) else { break };
            if sources.iter().any(|it| it.owner == *parent) {
                break;
            }
            until = until.min(item.otransid.get());
            sources.push(Source { owner: *parent, until });
            at = *parent;
        }
        sources
    }
}

/// All trees that readers of files need, put together. Returns the root of the root tree; `None` if
/// no files are left.
pub(crate) fn put_together(roots: Roots, blocks: &Arc<Blocks>) -> (Stock, Option<StateRoot>) {
    let mut trees = Vec::new();
    let mut missing = Missing::new(blocks);
    let subvolumes = roots.subvolumes(blocks);
    for tree in subvolumes.iter().copied().chain([CSUM_TREE]) {
        if roots.known(tree).is_none_or(|root| missing.at(root) > 0) {
            trees.push((tree, roots.tree(blocks, &mut missing, tree)));
        }
    }
    drop(missing);
    let mut stock = Stock::new(blocks.clone());
    let mut items = roots.items;
    for (tree, attached) in trees {
        let key = roots.roots.get(&tree).map(|(key, _)| *key);
        let key = key.unwrap_or(Key::new(tree, ItemType::ROOT_ITEM, 0));
        let Some(root) = stock.make_tree(tree, &attached) else {
            items.remove(&key);
            continue;
        };
        let item = roots.roots.get(&tree).map(|(_, item)| *item);
        let item = with_root(&item.unwrap_or_else(|| new_root_item(tree)), root);
        items.insert(key, item.as_bytes().to_vec());
        if is_subvolume(tree) {
            stock.doubt(tree, attached.lost);
        }
    }
    stock.doubt_bad_items(&subvolumes, &roots.in_use);
    let root = make_root_tree(&mut stock, &items);
    (stock, root)
}

/// The roots that trees had, by tree and generation.
pub(crate) type PastRoots = BTreeMap<(u64, u64), Pointer>;

/// The roots that all leaves of the root tree name, of any age. A commit writes an item with its
/// generation last of all, so that it names the block that counts.
pub(crate) fn past_roots(blocks: &Blocks) -> PastRoots {
    let mut roots = PastRoots::new();
    let leaves = blocks.all().iter().filter(|it| (it.owner, it.level) == (ROOT_TREE, 0));
    for leaf in leaves {
        let Some(bytes) = blocks.read(&leaf.pointer()) else { continue };
        for (key, data) in Node::from_checked(&bytes).iter_items() {
            if let (ItemType::ROOT_ITEM, Ok(item)) = (key.item_type, RootItem::parse(data)) {
                let root = pointer(&item);
                roots.insert((key.objectid, root.generation), root);
            }
        }
    }
    roots
}

/// The root that a tree had after a commit, if it is there and no block of the tree is newer.
fn last_root(blocks: &Blocks, tree: u64, roots: &PastRoots, until: u64) -> Option<Pointer> {
    let (_, root) = roots.range((tree, 0)..=(tree, until)).next_back()?;
    let is_newer =
        |it: &Block| it.owner == tree && (root.generation + 1..=until).contains(&it.generation);
    (blocks.has(root) && !blocks.all().iter().any(is_newer)).then_some(*root)
}

/// These subvolumes and the checksums of data as they were in a commit, as far as their blocks are
/// left. Returns the root of a root tree.
pub(crate) fn put_together_until(
    blocks: &Arc<Blocks>,
    subvolumes: &[u64],
    roots: &PastRoots,
    until: u64,
) -> (Stock, Option<StateRoot>) {
    let mut missing = Missing::new(blocks);
    let mut items = BTreeMap::new();
    let mut stock = Stock::new(blocks.clone());
    for tree in subvolumes.iter().copied().chain([CSUM_TREE]) {
        let sources = [Source { owner: tree, until }];
        let root = last_root(blocks, tree, roots, until);
        let attached = attach(blocks, &mut missing, root, &sources, &InUse::new());
        if let Some(root) = stock.make_tree(tree, &attached) {
            let key = Key::new(tree, ItemType::ROOT_ITEM, 0);
            items.insert(key, with_root(&new_root_item(tree), root).as_bytes().to_vec());
        }
    }
    drop(missing);
    let root = make_root_tree(&mut stock, &items);
    (stock, root)
}

/// Makes a root tree, if it has trees of files.
fn make_root_tree(stock: &mut Stock, items: &BTreeMap<Key, Vec<u8>>) -> Option<StateRoot> {
    let is_of_files =
        |key: &Key| key.item_type == ItemType::ROOT_ITEM && is_subvolume(key.objectid);
    items.keys().find(|key| is_of_files(key))?;
    let Pointer { logical, generation, level } = stock.make_leaves(ROOT_TREE, items)?;
    Some(StateRoot { root: Logical(logical), level, generation })
}

fn is_tree_block(key: Key, data: &[u8]) -> bool {
    Extent::parse(key, data).is_ok_and(|extent| extent.is_tree_block())
}

fn own(tree: u64) -> Source {
    Source { owner: tree, until: u64::MAX }
}

fn pointer(item: &RootItem) -> Pointer {
    Pointer { logical: item.bytenr.get(), generation: item.generation.get(), level: item.level }
}

/// The last root of a tree of files, of which nothing is known except its blocks: the highest of
/// those of its last commit. Each root that it ever had begins with its first key; so a block that
/// has another like it with another first key may be one of several below a lost root.
fn newest_root(blocks: &Blocks, tree: u64, in_use: &InUse) -> Option<Pointer> {
    if !is_subvolume(tree) {
        return None;
    }
    let own = || blocks.all().iter().filter(|block| block.owner == tree);
    let level = own().map(|block| block.level).max()?;
    let highest = || own().filter(|block| block.level == level);
    let first = Key::new(FIRST_FREE, ItemType::INODE_ITEM, 0);
    if highest().any(|block| block.first.get() != first) {
        return None;
    }
    let newest = highest().max_by_key(|block| age(block, in_use))?;
    let is_last = own().all(|block| block.generation <= newest.generation);
    is_last.then(|| newest.pointer())
}

/// The same item of a tree that has another root.
fn with_root(item: &RootItem, root: Pointer) -> RootItem {
    let generation = root.generation.into();
    let (bytenr, level) = (root.logical.into(), root.level);
    RootItem { bytenr, level, generation, generation_v2: generation, ..*item }
}

fn new_root_item(tree: u64) -> RootItem {
    let root_dirid = if is_subvolume(tree) { FIRST_FREE } else { 0 };
    RootItem { root_dirid: root_dirid.into(), refs: 1.into(), ..RootItem::new_zeroed() }
}
