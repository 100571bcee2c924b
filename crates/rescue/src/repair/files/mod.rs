//! Mending a tree of files: names from whichever of their three items is left, and what inodes
//! count from what they have.
//!
//! A name is told three times: by the directory's entry by hash, by its entry by index, and by the
//! inode's reference. Each alone is enough.
//!
//! # Invariants
//! - A name that two of three tell alike stays as it is. No name of an inode that exists is dropped,
//!   except further names of a directory, and those that two inodes claim.
//! - An inode that has links by its own count, or content, and no name gets one in `lost+found`.
//! - Content of files is not changed: no file extent is dropped, shortened or moved.
//! - Memory grows with the tree: about 200 bytes for each name, 100 for each inode.

mod counts;
mod names;
mod tree;

use std::collections::BTreeSet;

use super::block::Blocks;
use super::commit::each_item;
use super::update::{Edits, Root};
pub(super) use names::is_name;
pub(super) use tree::Known;
use tree::Tree;

/// What a tree of files has to do with subvolumes.
pub(super) struct Subvolumes {
    /// Those that it may name.
    pub(super) listed: BTreeSet<u64>,
    /// Those that no tree names: they get a name here.
    pub(super) homeless: Vec<u64>,
    /// Whether it is a snapshot, which has the entries of its source, also those that lead nowhere.
    pub(super) is_snapshot: bool,
}

/// The changes that mend a tree of files, and what there is to say about them.
pub(super) fn mend(
    blocks: &Blocks<'_>,
    tree: u64,
    root: Root,
    subvolumes: Subvolumes,
    known: Known,
) -> (Edits, Vec<String>) {
    let Subvolumes { listed, homeless, is_snapshot } = subvolumes;
    let item_bytes = known.item_bytes;
    let mut found = Tree { subvolumes: listed, is_snapshot, item_bytes, ..Tree::default() };
    each_item(blocks, tree, root, &mut |key, data| found.add(key, data));
    let mut notes = Vec::new();
    names::mend(&mut found, &homeless, known, &mut notes);
    counts::mend(&mut found, known, &mut notes);
    let named = notes.into_iter().map(|note| format!("subvolume {tree}: {note}"));
    (found.edits, named.collect())
}
