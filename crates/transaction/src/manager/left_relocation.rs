//! Dropping the relocation trees that a crash left while the kernel moved block groups.
//!
//! The kernel moves what a group holds in a copy of each subvolume, its relocation tree, and then
//! exchanges blocks between the two, commit by commit. So a subvolume is whole by itself in every
//! commit, and what its relocation tree has besides is needless. The group that was being emptied
//! keeps what had not moved, and a balance moves that anew.
//!
//! # Invariants
//! - No file system is open for writing with a relocation tree: nothing else knows whose references
//!   its blocks are.
//! - A crash while one is dropped leaves one that is being deleted, which Linux drops too.

use larder_format::objectid::TREE_RELOC;

use super::TransactionManager;
use crate::error::Result;
use crate::space::Priority;

/// References that are dropped in a step, at most.
const REFERENCES_PER_STEP: u64 = 1024;

/// Drops all relocation trees, and commits that.
pub(super) fn drop_relocation_trees(manager: &TransactionManager) -> Result<()> {
    let mut count = 0;
    // All of them have this id: one is opened after the other is gone.
    while manager.trees.open(TREE_RELOC)?.is_some() {
        let handle = manager.start(1, Priority::Cleaning)?;
        handle.change_root_item(TREE_RELOC, |item| item.refs = 0.into());
        handle.end()?;
        while !manager.drop_tree(TREE_RELOC, REFERENCES_PER_STEP)? {}
        count += 1;
    }
    if count > 0 {
        manager.commit()?;
        tracing::info!("{count} relocation trees that a crash of the kernel left are dropped");
    }
    Ok(())
}
