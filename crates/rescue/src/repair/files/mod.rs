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

/// The changes that mend a tree of files, and what there is to say about them.
pub(super) fn mend(
    blocks: &Blocks<'_>,
    tree: u64,
    root: Root,
    subvolumes: BTreeSet<u64>,
    is_snapshot: bool,
    known: Known,
) -> (Edits, Vec<String>) {
    let mut found = Tree { subvolumes, is_snapshot, ..Tree::default() };
    each_item(blocks, tree, root, &mut |key, data| found.add(key, data));
    let mut notes = Vec::new();
    names::mend(&mut found, known, &mut notes);
    counts::mend(&mut found, known, &mut notes);
    let named = notes.into_iter().map(|note| format!("subvolume {tree}: {note}"));
    (found.edits, named.collect())
}
