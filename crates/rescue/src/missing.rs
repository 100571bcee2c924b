//! What is missing below a block.

use std::collections::HashMap;

use larder_format::Node;

use crate::blocks::{Blocks, Pointer};

/// A count that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// How many blocks are missing below others. Each block is looked below once.
pub(crate) struct Missing<'a> {
    blocks: &'a Blocks,
    /// Below each block that was found, at its first copy.
    found: Vec<u32>,
    /// Below other blocks.
    elsewhere: HashMap<Pointer, u32>,
}

impl<'a> Missing<'a> {
    pub(crate) fn new(blocks: &'a Blocks) -> Self {
        Self { blocks, found: vec![UNKNOWN; blocks.all().len()], elsewhere: HashMap::new() }
    }

    /// How many blocks are missing at `pointer` and below. A missing node counts once, whatever was
    /// below it.
    pub(crate) fn at(&mut self, pointer: Pointer) -> u32 {
        let found = self.blocks.find(&pointer);
        let known = match found {
            Some(at) => Some(self.found[at]).filter(|known| *known != UNKNOWN),
            None => self.elsewhere.get(&pointer).copied(),
        };
        if let Some(known) = known {
            return known;
        }
        let missing = if pointer.level == 0 {
            u32::from(!self.blocks.has(&pointer))
        } else {
            self.below(pointer)
        };
        match found {
            Some(at) => self.found[at] = missing,
            None => drop(self.elsewhere.insert(pointer, missing)),
        }
        missing
    }

    fn below(&mut self, pointer: Pointer) -> u32 {
        let Some(bytes) = self.blocks.read(&pointer) else { return 1 };
        let children = Node::from_checked(&bytes).key_pointers().iter();
        let add = |sum: u32, child: Pointer| sum.saturating_add(self.at(child));
        children.map(|it| Pointer::in_node(it, pointer.level)).fold(0, add).min(UNKNOWN - 1)
    }
}
