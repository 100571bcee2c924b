//! Changing the bytes of an internal node.

use std::ops::Range;

use larder_format::node::{HEADER_SIZE, Header, KEY_POINTER_SIZE, KeyPointer};
use larder_format::{Key, Logical, Node};
use zerocopy::FromBytes;

/// An internal node whose bytes may change.
pub(crate) struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

/// A pointer to a child.
pub(crate) fn pointer(key: Key, logical: Logical, generation: u64) -> KeyPointer {
    KeyPointer { key: key.into(), blockptr: logical.0.into(), generation: generation.into() }
}

impl<'a> NodeMut<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes }
    }

    fn header(&mut self) -> &mut Header {
        Header::mut_from_prefix(self.bytes).expect("a block is longer than its header").0
    }

    fn count(&mut self) -> usize {
        self.header().nritems.get() as usize
    }

    fn pointers(&mut self, count: usize) -> &mut [KeyPointer] {
        <[KeyPointer]>::mut_from_prefix_with_elems(&mut self.bytes[HEADER_SIZE..], count)
            .expect("room was made sure of")
            .0
    }

    /// Puts `new` before the pointer at `slot`.
    pub(crate) fn insert(&mut self, slot: usize, new: &[KeyPointer]) {
        let count = self.count();
        let pointers = self.pointers(count + new.len());
        pointers.copy_within(slot..count, slot + new.len());
        pointers[slot..slot + new.len()].copy_from_slice(new);
        self.header().nritems += new.len() as u32;
    }

    /// Removes these pointers.
    pub(crate) fn remove(&mut self, slots: Range<usize>) {
        let count = self.count();
        self.pointers(count).copy_within(slots.end.., slots.start);
        self.header().nritems -= slots.len() as u32;
    }

    /// Makes the pointer at `slot` lead to another block with the same first key.
    pub(crate) fn set_block(&mut self, slot: usize, logical: Logical, generation: u64) {
        let pointer = &mut self.pointers(slot + 1)[slot];
        pointer.blockptr = logical.0.into();
        pointer.generation = generation.into();
    }

    /// Changes the key of the pointer at `slot`.
    pub(crate) fn set_key(&mut self, slot: usize, key: Key) {
        self.pointers(slot + 1)[slot].key = key.into();
    }
}

/// Whether `more` pointers fit.
pub(crate) fn has_room(node: Node<'_>, more: usize) -> bool {
    node.nritems() + more <= larder_format::node::max_key_pointers(node.bytes().len())
}

/// Zeros the bytes after the pointers.
pub(crate) fn clear_free_space(bytes: &mut [u8]) {
    let count = NodeMut::new(bytes).count();
    bytes[HEADER_SIZE + count * KEY_POINTER_SIZE..].fill(0);
}
