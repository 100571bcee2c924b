//! The chunk tree, read whole.
//!
//! This is the one tree that must be read before any other can be; it is small. The walk visits no
//! block twice and each must carry its own address, so that its work is bounded by the devices.

use std::collections::HashSet;

use larder_format::item::{self, DevItem};
use larder_format::{FormatError, ItemType, Key, Logical, Node, objectid, read_exact_item};

use super::OpenError;
use crate::chunk::{Chunk, ChunkMap};
use crate::read::BlockExpectation;
use crate::volume::Volume;

/// The content of the chunk tree.
pub(super) struct ChunkTree {
    /// All chunks; system chunks come from the superblock's array.
    pub(super) chunks: ChunkMap,
    /// The devices in order of their ids.
    pub(super) dev_items: Vec<DevItem>,
}

impl ChunkTree {
    /// Reads the chunk tree through a volume that knows the system chunks.
    pub(super) fn read(volume: &Volume) -> Result<Self, OpenError> {
        let superblock = volume.superblock();
        let root = BlockExpectation {
            generation: Some(superblock.chunk_root_generation.get()),
            level: Some(superblock.chunk_root_level),
            owner: Some(objectid::CHUNK_TREE),
            first_key: None,
        };
        let mut tree = Self { chunks: (*volume.chunks()).clone(), dev_items: Vec::new() };
        let mut seen = HashSet::from([superblock.chunk_root()]);
        let mut todo = vec![(superblock.chunk_root(), root)];
        let mut block = vec![0; volume.nodesize() as usize];
        while let Some((logical, expected)) = todo.pop() {
            volume.read_tree_block(logical, &expected, &mut block)?;
            let node = Node::from_checked(&block);
            if node.is_leaf() {
                tree.add_leaf(logical, &node, superblock.sectorsize.get())?;
                continue;
            }
            for pointer in node.key_pointers().iter().rev() {
                let child = pointer.blockptr();
                if !seen.insert(child) {
                    let problem = format!("its child at {child} was met before");
                    return Err(OpenError::ChunkTreeItem { logical, problem });
                }
                let expected = BlockExpectation {
                    generation: Some(pointer.generation.get()),
                    level: Some(node.level() - 1),
                    owner: Some(objectid::CHUNK_TREE),
                    first_key: Some(pointer.key.get()),
                };
                todo.push((child, expected));
            }
        }
        tree.dev_items.sort_by_key(|item| item.devid.get());
        Ok(tree)
    }

    fn add_leaf(
        &mut self,
        logical: Logical,
        leaf: &Node<'_>,
        sectorsize: u32,
    ) -> Result<(), OpenError> {
        for (key, data) in leaf.iter_items() {
            let at_item = |error: FormatError| OpenError::ChunkTreeItem {
                logical,
                problem: format!("item {key}: {error}"),
            };
            match key.item_type {
                ItemType::DEV_ITEM => self.add_device(logical, key, data)?,
                ItemType::CHUNK_ITEM => {
                    let item = item::Chunk::parse(data).map_err(at_item)?;
                    self.add_chunk(Chunk::from_item(Logical(key.offset), &item, sectorsize)?)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_device(&mut self, logical: Logical, key: Key, data: &[u8]) -> Result<(), OpenError> {
        let refuse = |problem| Err(OpenError::ChunkTreeItem { logical, problem });
        let item: &DevItem = match read_exact_item(data) {
            Ok(item) => item,
            Err(error) => return refuse(format!("item {key}: {error}")),
        };
        if item.devid.get() != key.offset {
            return refuse(format!("item {key} is of device {}", item.devid));
        }
        if self.dev_items.iter().any(|other| other.devid == item.devid) {
            return refuse(format!("item {key}: there is another of this device"));
        }
        self.dev_items.push(*item);
        Ok(())
    }

    fn add_chunk(&mut self, chunk: Chunk) -> Result<(), OpenError> {
        let logical = chunk.logical();
        let is_known = self.chunks.get(logical).is_some_and(|known| known.logical() == logical);
        if is_known { Ok(()) } else { Ok(self.chunks.insert(chunk)?) }
    }
}
