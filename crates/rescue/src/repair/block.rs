//! Tree blocks as a repair reads them: what a sound block says, or what can be saved of another.
//!
//! # Invariants
//! - A block that the volume's own reader accepts and whose items the kernel accepts is given as it
//!   is, and called sound.
//! - Of other copies only those count whose checksum is right, or becomes right by one bit. They
//!   must be told by at least three of the five fields that say which block it is.
//! - An item that is saved lies within its block, and keys ascend.

use std::cell::RefCell;
use std::collections::HashSet;

use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE, ItemHeader, KeyPointer, max_leaf_items};
use larder_format::objectid::is_subvolume;
use larder_format::tree_check::{Context, check_node};
use larder_format::{Header, ItemType, Key, Logical, Node};
use larder_volume::{BlockExpectation, Volume};
use zerocopy::FromBytes;

/// What leads to a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) key: Key,
    pub(super) logical: u64,
    pub(super) generation: u64,
}

/// What a tree block holds.
#[derive(Debug)]
pub(super) enum Content {
    Leaf(Vec<(Key, Vec<u8>)>),
    Node(Vec<Pointer>),
}

/// A tree block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) content: Content,
    pub(super) generation: u64,
    /// Whether it can stay as it is.
    pub(super) is_sound: bool,
}

/// The tree blocks of a volume.
pub(super) struct Blocks<'v> {
    pub(super) volume: &'v Volume,
    context: Context,
    /// Blocks that a finding is about: they are written anew.
    pub(super) suspects: HashSet<u64>,
    /// Flips of one bit that were turned back, and items that were dropped: for the plan.
    pub(super) notes: RefCell<Vec<String>>,
    /// Whether only sound blocks count.
    is_strict: bool,
}

impl<'v> Blocks<'v> {
    pub(super) fn new(volume: &'v Volume, suspects: HashSet<u64>) -> Self {
        let context = Context::new(&volume.superblock());
        Self { volume, context, suspects, notes: RefCell::default(), is_strict: false }
    }

    /// Those that an ordinary reader reads.
    pub(super) fn strict(volume: &'v Volume) -> Self {
        Self { is_strict: true, ..Self::new(volume, HashSet::new()) }
    }

    pub(super) fn nodesize(&self) -> usize {
        self.volume.nodesize() as usize
    }

    pub(super) fn note(&self, note: String) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Whether the kernel accepts the block.
    pub(super) fn accepts(&self, bytes: &[u8]) -> Result<(), Option<usize>> {
        let node = Node::parse(bytes).map_err(|_| None)?;
        check_node(node, &self.context).map_err(|error| error.slot)
    }

    /// The block of `tree` at a pointer; `None` if nothing is left of it.
    pub(super) fn read(&self, tree: u64, level: u8, at: &Pointer) -> Option<Block> {
        let mut bytes = vec![0; self.nodesize()];
        let expected = BlockExpectation {
            generation: Some(at.generation),
            level: Some(level),
            owner: Some(tree),
            first_key: None,
        };
        let read = self.volume.read_tree_block(Logical(at.logical), &expected, &mut bytes);
        if read.is_ok() {
            let is_sound = self.accepts(&bytes).is_ok()
                && !self.suspects.contains(&at.logical)
                && self.volume.is_as_stored(Logical(at.logical), &bytes);
            return Some(parsed(&bytes, is_sound));
        }
        let copies = if self.is_strict { 0 } else { self.volume.copies(Logical(at.logical)) };
        (0..copies).find_map(|copy| self.save(tree, level, at, copy))
    }

    /// The level and the generation in the header of a block with a right checksum.
    pub(super) fn told_by(&self, logical: u64) -> Option<(u8, u64)> {
        let mut bytes = vec![0; self.nodesize()];
        let expected = BlockExpectation::default();
        self.volume.read_tree_block(Logical(logical), &expected, &mut bytes).ok()?;
        let header = Node::from_checked(&bytes).header();
        Some((header.level, header.generation.get()))
    }

    /// What can be saved of a copy of a block.
    fn save(&self, tree: u64, level: u8, at: &Pointer, copy: usize) -> Option<Block> {
        let mut bytes = vec![0; self.nodesize()];
        self.volume.read_copy(Logical(at.logical), copy, &mut bytes).ok()?;
        let kind = self.volume.checksum_type();
        let is_right = |bytes: &[u8]| kind.compute_block(bytes).as_bytes() == &bytes[..kind.size()];
        if !is_right(&bytes) {
            let bit = flipped_bit(&mut bytes, is_right)?;
            self.note(format!("block {}: bit {bit} is turned back", at.logical));
        }
        let header = Header::ref_from_prefix(&bytes).ok()?.0;
        let owner = header.owner.get();
        let is_of_tree = owner == tree || (is_subvolume(owner) && is_subvolume(tree));
        let told = [
            header.bytenr.get() == at.logical,
            header.generation.get() == at.generation,
            header.level == level,
            header.fsid() == self.volume.superblock().metadata_uuid(),
            is_of_tree,
        ];
        if told.iter().filter(|is_told| **is_told).count() < 3 {
            return None;
        }
        let generation = header.generation.get().min(self.volume.superblock().generation.get());
        let content = if level == 0 {
            Content::Leaf(self.saved_items(at, &bytes))
        } else {
            Content::Node(saved_pointers(&bytes))
        };
        Some(Block { content, generation, is_sound: false })
    }

    fn saved_items(&self, at: &Pointer, bytes: &[u8]) -> Vec<(Key, Vec<u8>)> {
        let count = Header::ref_from_prefix(bytes).map_or(0, |(header, _)| header.nritems.get());
        let count = (count as usize).min(max_leaf_items(bytes.len()));
        let header = |slot: usize| {
            let start = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
            let read = ItemHeader::read_from_prefix(&bytes[start..]).expect("within the block");
            read.0
        };
        let headers: Vec<ItemHeader> = (0..count).map(header).collect();
        let mut keys: Vec<Key> = headers.iter().map(|header| header.key.get()).collect();
        mend_keys(&mut keys, |was, is| {
            self.note(format!("block {}: one bit of key {was} is turned back: {is}", at.logical));
        });
        let mut saved: Vec<(Key, Vec<u8>)> = Vec::new();
        for (slot, key) in keys.iter().enumerate() {
            let Some(data) = item_data(bytes, &headers, slot) else {
                self.note(format!("block {}: item {key} is dropped: it is torn", at.logical));
                continue;
            };
            if saved.last().is_some_and(|(last, _)| last >= key) {
                self.note(format!(
                    "block {}: item {key} is dropped: it is out of order",
                    at.logical
                ));
                continue;
            }
            saved.push((*key, data.to_vec()));
        }
        saved
    }
}

fn parsed(bytes: &[u8], is_sound: bool) -> Block {
    let node = Node::from_checked(bytes);
    let content = if node.is_leaf() {
        Content::Leaf(node.iter_items().map(|(key, data)| (key, data.to_vec())).collect())
    } else {
        Content::Node(node.key_pointers().iter().map(pointer).collect())
    };
    let header = node.header();
    Block { content, generation: header.generation.get(), is_sound }
}

fn pointer(pointer: &KeyPointer) -> Pointer {
    Pointer {
        key: pointer.key.get(),
        logical: pointer.blockptr.get(),
        generation: pointer.generation.get(),
    }
}

/// The pointers of a node; their keys are set right by their children.
fn saved_pointers(bytes: &[u8]) -> Vec<Pointer> {
    let count = Header::ref_from_prefix(bytes).map_or(0, |(header, _)| header.nritems.get());
    let all = bytes[HEADER_SIZE..].chunks_exact(size_of::<KeyPointer>());
    let read = |chunk: &[u8]| KeyPointer::read_from_bytes(chunk).expect("has its size");
    all.take(count as usize).map(|chunk| pointer(&read(chunk))).collect()
}

/// The data of an item. If its own header is wrong, its neighbours say where it lies.
fn item_data<'b>(bytes: &'b [u8], headers: &[ItemHeader], slot: usize) -> Option<&'b [u8]> {
    let most = bytes.len() - HEADER_SIZE;
    let range = |slot: usize| {
        let start = headers.get(slot)?.offset.get() as usize;
        let end = start.checked_add(headers[slot].size.get() as usize)?;
        (end <= most && start >= headers.len() * ITEM_HEADER_SIZE).then_some((start, end))
    };
    let before = slot.checked_sub(1).map_or(Some(most), |slot| range(slot).map(|it| it.0));
    let after = if slot + 1 < headers.len() { range(slot + 1).map(|it| it.1) } else { None };
    let own = range(slot).filter(|(start, end)| {
        before.is_none_or(|before| *end == before) || after.is_none_or(|after| after == *start)
    });
    let between = || Some((after?, before?)).filter(|(start, end)| start <= end);
    let (start, end) = own.or_else(between)?;
    bytes.get(HEADER_SIZE + start..HEADER_SIZE + end)
}

/// Turns back one bit of keys that are out of order, if that puts them between their neighbours.
fn mend_keys(keys: &mut [Key], mut tell: impl FnMut(Key, Key)) {
    for slot in 0..keys.len() {
        let before = slot.checked_sub(1).map(|slot| keys[slot]);
        let after = keys.get(slot + 1).copied();
        let fits = |key: Key| {
            before.is_none_or(|before| before < key) && after.is_none_or(|after| key < after)
        };
        let next_fits = match (before, after) {
            (Some(before), Some(after)) => before < after,
            _ => true,
        };
        if fits(keys[slot]) || !next_fits {
            continue;
        }
        let key = keys[slot];
        let near = |it: &Key| [before, after].iter().flatten().any(|n| n.objectid == it.objectid);
        let candidates: Vec<Key> =
            (0..136).map(|bit| flipped(key, bit)).filter(|it| fits(*it)).collect();
        let nearest = candidates.iter().find(|it| near(it)).or(candidates.first());
        if let Some(mended) = nearest {
            tell(key, *mended);
            keys[slot] = *mended;
        }
    }
}

fn flipped(key: Key, bit: u32) -> Key {
    let Key { mut objectid, item_type: ItemType(mut item_type), mut offset } = key;
    match bit {
        0..64 => objectid ^= 1 << bit,
        64..72 => item_type ^= 1 << (bit - 64),
        _ => offset ^= 1 << (bit - 72),
    }
    Key::new(objectid, ItemType(item_type), offset)
}

/// Turns back the one bit that makes the checksum wrong, and returns its number from the start.
pub(super) fn flipped_bit(bytes: &mut [u8], is_right: impl Fn(&[u8]) -> bool) -> Option<usize> {
    (0..bytes.len() * 8).find(|bit| {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = is_right(bytes);
        if !found {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(objectid: u64) -> Key {
        Key::new(objectid, ItemType::INODE_ITEM, 0)
    }

    #[test]
    fn a_flipped_bit_of_a_key_is_turned_back() {
        for (slot, bit) in [(0, 40), (1, 20), (2, 70), (3, 9), (3, 63)] {
            let sound = [key(257), key(258), key(259), key(260)];
            let mut keys = sound;
            keys[slot] = flipped(keys[slot], bit);
            mend_keys(&mut keys, |_, _| ());
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{slot} {bit}: {keys:?}");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_block_is_found() {
        let mut bytes: Vec<u8> = (0..4096).map(|at| at as u8).collect();
        let sound = bytes.clone();
        let kind = larder_format::ChecksumType::Crc32c;
        let wanted = kind.compute_block(&bytes);
        bytes[2000] ^= 4;
        let bit = flipped_bit(&mut bytes, |bytes| kind.compute_block(bytes) == wanted);
        assert_eq!((bit, bytes == sound), (Some(16_002), true));
    }
}
