//! Tree blocks and their items.

use larder_format::node::HEADER_FLAG_WRITTEN;
use larder_format::tree_check::{Context, check_node};
use larder_format::{Header, Key, Node, Superblock};
use zerocopy::FromBytes;

use crate::items;

/// Reads a tree block: the first byte chooses the properties of the file system, the rest is the
/// block.
///
/// Also calls the parsers of items that the checks would refuse.
pub fn tree_block(bytes: &[u8]) {
    let Some((&choice, block)) = bytes.split_first() else { return };
    let mut block = block.to_vec();
    if let Ok((header, _)) = Header::mut_from_prefix(&mut block) {
        header.flags = (header.flags.get() | HEADER_FLAG_WRITTEN).into();
    }
    let Ok(node) = Node::parse(&block) else { return };
    let _ = check_node(node, &context(choice, block.len()));
    let _ = (node.first_key(), node.last_key(), node.child_slot(Key::MAX));
    if node.is_leaf() {
        let _ = node.leaf_free_space();
        for (key, data) in node.iter_items() {
            items::parse(key, data);
            let _ = node.search(key);
        }
    }
}

/// Any of the four checksums, and all features or none.
fn context(choice: u8, nodesize: usize) -> Context {
    let mut superblock = Superblock::zeroed();
    superblock.sectorsize = 4096.into();
    superblock.nodesize = (nodesize as u32).into();
    superblock.csum_type = u16::from(choice & 3).into();
    superblock.incompat_flags = if choice & 4 == 0 { 0 } else { u64::MAX }.into();
    Context::new(&superblock)
}
