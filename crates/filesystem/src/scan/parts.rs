//! Dividing a subvolume among threads.

use larder_btree::{Block, TreeView};
use larder_format::objectid::{FIRST_FREE, LAST_FREE};

use crate::error::Result;
use crate::handle::subvolume::Subvolume;
use crate::scan::Scan;

/// Each part has at least so many subtrees, so that parts are of about equal size.
const SUBTREES_PER_PART: usize = 4;

impl Subvolume {
    /// Like [`scan`](Self::scan), but in at most `count` parts of about equal size, in order, for as
    /// many threads.
    ///
    /// ```no_run
    /// # use larder_filesystem as larder;
    /// # fn sum_up(subvolume: &larder::Subvolume) -> Result<(), larder::Error> {
    /// let sum = |part: larder::Scan| -> Result<u64, larder::Error> {
    ///     part.map(|inode| Ok(inode?.metadata.size_bytes)).sum()
    /// };
    /// let parts = subvolume.scan_parts(4)?;
    /// let total: u64 = std::thread::scope(|scope| {
    ///     let threads: Vec<_> =
    ///         parts.into_iter().map(|part| scope.spawn(move || sum(part))).collect();
    ///     threads.into_iter().map(|thread| thread.join().expect("it only adds")).sum::<Result<_, _>>()
    /// })?;
    /// # let _ = total;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_parts(&self, count: usize) -> Result<Vec<Scan>> {
        let subtrees = self.subtree_starts(count.saturating_mul(SUBTREES_PER_PART))?;
        let count = count.min(subtrees.len());
        let mut starts = vec![FIRST_FREE];
        for part in 1..count {
            let start = subtrees[part * subtrees.len() / count];
            if start > starts[starts.len() - 1] && start <= LAST_FREE {
                starts.push(start);
            }
        }
        let lasts = starts.iter().skip(1).map(|next| next - 1).chain([LAST_FREE]);
        Ok(starts.iter().zip(lasts).map(|(&first, last)| self.scan_between(first, last)).collect())
    }

    /// The inode numbers at which the subtrees below the root begin; those of the level below it if
    /// there are fewer than `least`.
    fn subtree_starts(&self, least: usize) -> Result<Vec<u64>> {
        // A subvolume that can change is scanned in one part.
        let TreeView::Committed(tree) = self.view() else { return Ok(Vec::new()) };
        let root = tree.root_block()?;
        if root.level() < 2 || root.node().nritems() >= least {
            return Ok(starts(&root));
        }
        let mut all = Vec::new();
        for slot in 0..root.node().nritems() {
            match tree.child(&root, slot, None) {
                Ok(child) => all.extend(starts(&child.block)),
                // It is a part nevertheless, and its scan returns the error.
                Err(_) => all.push(root.node().key(slot).objectid),
            }
        }
        Ok(all)
    }
}

/// The inode numbers at which a node's children begin; none of a leaf.
fn starts(block: &Block) -> Vec<u64> {
    let node = block.node();
    if node.is_leaf() {
        return Vec::new();
    }
    node.key_pointers().iter().map(|pointer| pointer.key.get().objectid).collect()
}
