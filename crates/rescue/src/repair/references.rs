//! Every extent that trees refer to, and every reference to it: what the extent tree must say.
//!
//! # Invariants
//! - Each block is read once, however many trees share it.
//! - A block whose owner still reaches it refers to what is below by its owner, unless a balance
//!   wrote it; any other by its address. So a reference is the same from whichever tree the block
//!   is reached.
//! - A block that cannot be read is counted: then the references are not complete.

use std::collections::HashMap;

use larder_format::item::{BackRef, FileExtent};
use larder_format::node::{HEADER_FLAG_RELOC, HEADER_SIZE, MAX_LEVELS};
use larder_format::objectid::{TREE_LOG, is_file_tree};
use larder_format::{Header, ItemType, Key, Logical};
use zerocopy::FromBytes;

use super::block::{Blocks, Content, Pointer};
use super::update::Root;

/// A tree to read: its id, its root, and how far its deletion has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) id: u64,
    pub(super) root: Root,
    /// The key and the level of [`larder_format::item::RootItem::drop_progress`].
    pub(super) dropped: Option<(Key, u8)>,
}

/// A tree block in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedBlock {
    pub(super) logical: u64,
    pub(super) generation: u64,
    pub(super) owner: u64,
    pub(super) first_key: Key,
    pub(super) level: u8,
    /// Whether its references count its address.
    pub(super) is_full: bool,
    /// The tree through which it was met first.
    tree: u64,
    is_owned: bool,
    /// Whether a balance wrote it, and it is no root: then its references count its address.
    is_relocated: bool,
}

/// A data extent in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedData {
    pub(super) start: u64,
    pub(super) len_bytes: u64,
    pub(super) generation: u64,
}

/// All that trees refer to.
#[derive(Debug, Default)]
pub(super) struct References {
    pub(super) blocks: Vec<UsedBlock>,
    /// In order of addresses, each once.
    pub(super) data: Vec<UsedData>,
    /// References by the address of what they refer to, sorted.
    pub(super) of: Vec<(u64, BackRef)>,
    /// Blocks that could not be read: their trees.
    pub(super) lost: Vec<(u64, u64)>,
    /// Blocks and data of logs, which no extent tree lists.
    pub(super) logged: Vec<(u64, u64)>,
}

impl References {
    /// Reads the trees.
    pub(super) fn of(blocks: &Blocks<'_>, trees: &[Tree]) -> Self {
        let mut reader = Reader {
            blocks,
            found: Self::default(),
            by_address: HashMap::new(),
            fresh: Default::default(),
            dropped: HashMap::new(),
        };
        for tree in trees {
            let Root { logical, generation, level } = tree.root;
            if let Some(progress) = tree.dropped {
                reader.dropped.insert(tree.id, progress);
            }
            let at = Pointer { key: Key::MIN, logical, generation };
            let block = reader.meet(tree.id, level, &at);
            let block = &mut reader.found.blocks[block];
            block.is_owned |= block.owner == tree.id;
            block.is_relocated = false;
            reader.found.of.push((logical, BackRef::TreeBlock { root: tree.id }));
        }
        for level in (0..MAX_LEVELS).rev() {
            let mut fresh = std::mem::take(&mut reader.fresh[level]);
            fresh.sort_unstable_by_key(|number| reader.found.blocks[*number].logical);
            for number in fresh {
                reader.read(number);
            }
        }
        reader.finish()
    }

    /// All ranges in use.
    pub(super) fn ranges(&self, nodesize: u64) -> Vec<(u64, u64)> {
        let blocks = self.blocks.iter().map(|it| (it.logical, it.logical + nodesize));
        let data = self.data.iter().map(|it| (it.start, it.start.saturating_add(it.len_bytes)));
        blocks.chain(data).chain(self.logged.iter().copied()).collect()
    }
}

struct Reader<'a> {
    blocks: &'a Blocks<'a>,
    found: References,
    by_address: HashMap<u64, usize>,
    fresh: [Vec<usize>; MAX_LEVELS],
    dropped: HashMap<u64, (Key, u8)>,
}

impl Reader<'_> {
    fn meet(&mut self, tree: u64, level: u8, at: &Pointer) -> usize {
        let next = self.found.blocks.len();
        let number = *self.by_address.entry(at.logical).or_insert(next);
        if number == next {
            let (owner, is_relocated) = self.told_by(tree, level, at);
            self.found.blocks.push(UsedBlock {
                logical: at.logical,
                generation: at.generation,
                owner,
                is_relocated,
                first_key: at.key,
                level,
                is_full: false,
                tree,
                is_owned: false,
            });
            self.fresh[usize::from(level).min(MAX_LEVELS - 1)].push(number);
        }
        number
    }

    /// The owner in a block's header, and whether a balance wrote it: known before the block's
    /// parents are done with.
    fn told_by(&self, tree: u64, level: u8, at: &Pointer) -> (u64, bool) {
        let none = (tree, false);
        if !is_file_tree(tree) {
            return none;
        }
        let mut bytes = [0; HEADER_SIZE];
        let logical = Logical(at.logical);
        let volume = self.blocks.volume;
        let told = (0..volume.copies(logical)).find_map(|copy| {
            volume.read_copy(logical, copy, &mut bytes).ok()?;
            let header = Header::read_from_bytes(&bytes).ok()?;
            (header.bytenr.get() == at.logical && header.level == level).then_some(header)
        });
        told.map_or(none, |header| {
            (header.owner.get(), header.flags.get() & HEADER_FLAG_RELOC != 0)
        })
    }

    fn read(&mut self, number: usize) {
        let block = self.found.blocks[number];
        let UsedBlock { logical, generation, level, tree, owner, is_owned, first_key, .. } = block;
        let has_shared = is_file_tree(tree) && tree != TREE_LOG;
        let is_full = has_shared && (!is_owned || block.is_relocated);
        self.found.blocks[number].is_full = is_full;
        let at = Pointer { key: first_key, logical, generation };
        let Some(block) = self.blocks.read(tree, level, &at) else {
            self.found.lost.push((tree, logical));
            return;
        };
        match block.content {
            Content::Node(children) => {
                let gone = match self.dropped.get(&tree) {
                    Some((key, at)) if level >= *at => {
                        let after = children.partition_point(|child| child.key <= *key);
                        after.saturating_sub(1)
                    }
                    _ => 0,
                };
                self.found.blocks[number].first_key =
                    children.first().map_or(first_key, |it| it.key);
                for child in &children[gone..] {
                    let reference = if is_full {
                        BackRef::SharedBlock { parent: logical }
                    } else {
                        BackRef::TreeBlock { root: owner }
                    };
                    self.found.of.push((child.logical, reference));
                    let child = self.meet(tree, level - 1, child);
                    let child = &mut self.found.blocks[child];
                    child.is_owned |= is_owned && child.owner == owner;
                }
            }
            Content::Leaf(items) => {
                self.found.blocks[number].first_key = items.first().map_or(first_key, |it| it.0);
                for (key, data) in items {
                    if key.item_type == ItemType::EXTENT_DATA {
                        self.extent(key, &data, number);
                    }
                }
            }
        }
    }

    fn extent(&mut self, key: Key, data: &[u8], leaf: usize) {
        let Ok(FileExtent::Regular { header, extent, .. }) = FileExtent::parse(data) else {
            return;
        };
        let (start, len_bytes) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
        if start == 0 {
            return;
        }
        let UsedBlock { logical, owner, is_full, tree, .. } = self.found.blocks[leaf];
        if tree == TREE_LOG {
            self.found.logged.push((start, start.saturating_add(len_bytes)));
            return;
        }
        let offset = key.offset.wrapping_sub(extent.offset.get());
        let reference = if is_full {
            BackRef::SharedData { parent: logical, count: 1 }
        } else {
            BackRef::Data { root: owner, objectid: key.objectid, offset, count: 1 }
        };
        self.found.of.push((start, reference));
        let generation = header.generation.get();
        self.found.data.push(UsedData { start, len_bytes, generation });
    }

    fn finish(self) -> References {
        let Self { mut found, blocks, .. } = self;
        let nodesize = blocks.nodesize() as u64;
        let logs = found.blocks.iter().filter(|block| block.tree == TREE_LOG);
        found.logged.extend(logs.map(|block| (block.logical, block.logical + nodesize)));
        let of_logs: std::collections::HashSet<u64> = found
            .blocks
            .iter()
            .filter(|block| block.tree == TREE_LOG)
            .map(|block| block.logical)
            .collect();
        found.blocks.retain(|block| block.tree != TREE_LOG);
        found.of.retain(|(at, _)| !of_logs.contains(at));
        found.blocks.sort_unstable_by_key(|block| block.logical);
        found.data.sort_unstable_by_key(|data| (data.start, data.generation));
        found.data.dedup_by_key(|data| (data.start, data.len_bytes));
        found.of.sort_unstable_by_key(|(at, reference)| {
            let sequence = std::cmp::Reverse(reference.sequence());
            (*at, reference.item_type(), sequence, parts(reference))
        });
        found
    }
}

/// Tells references of one sequence apart.
fn parts(reference: &BackRef) -> [u64; 3] {
    match *reference {
        BackRef::Data { root, objectid, offset, .. } => [root, objectid, offset],
        _ => [0; 3],
    }
}
