//! The trees that a file system has only one of.

use std::sync::Arc;

use larder_btree::{Forest, LiveTree, TreeRoot};
use larder_format::feature::CompatRoFlags;
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, QUOTA_TREE,
};
use larder_format::{Superblock, Uuid};

use super::roots::Roots;

/// The trees that a file system has only one of, except those of files.
#[derive(Debug)]
pub(super) struct SystemTrees {
    pub(super) root: Arc<LiveTree>,
    pub(super) chunk: Arc<LiveTree>,
    pub(super) chunk_tree_uuid: Uuid,
    pub(super) extent: Arc<LiveTree>,
    pub(super) dev: Arc<LiveTree>,
    pub(super) csum: Arc<LiveTree>,
    pub(super) free_space: Option<Arc<LiveTree>>,
    /// The block group tree, or otherwise the extent tree.
    pub(super) block_group: Arc<LiveTree>,
    pub(super) quota: Option<Arc<LiveTree>>,
}

impl SystemTrees {
    /// The ids of those that must exist and that the root tree leads to.
    pub(super) fn required(superblock: &Superblock) -> Vec<u64> {
        let mut ids = vec![EXTENT_TREE, DEV_TREE, CSUM_TREE];
        if has_free_space_tree(superblock) {
            ids.push(FREE_SPACE_TREE);
        }
        if superblock.compat_ro_flags().contains(CompatRoFlags::BLOCK_GROUP_TREE) {
            ids.push(BLOCK_GROUP_TREE);
        }
        ids
    }

    /// Opens them.
    ///
    /// # Panics
    /// If `roots` lacks one that is [required](Self::required).
    pub(super) fn open(
        forest: &Forest,
        roots: &Roots,
        superblock: &Superblock,
        chunk_tree_uuid: Uuid,
    ) -> Self {
        let open = |id| {
            let (_, item) = roots.get(id)?;
            Some(forest.open_tree(TreeRoot::of_item(id, item), item.last_snapshot.get()))
        };
        let required = |id| open(id).expect("its root item was read");
        Self {
            root: forest.open_tree(TreeRoot::of_root_tree(superblock), 0),
            chunk: forest.open_tree(TreeRoot::of_chunk_tree(superblock), 0),
            chunk_tree_uuid,
            extent: required(EXTENT_TREE),
            dev: required(DEV_TREE),
            csum: required(CSUM_TREE),
            free_space: open(FREE_SPACE_TREE),
            block_group: open(BLOCK_GROUP_TREE).unwrap_or_else(|| required(EXTENT_TREE)),
            quota: open(QUOTA_TREE),
        }
    }
}

/// Whether there is a free space tree that is valid. An invalid one stays as it is: its flag tells
/// the next mount not to use it.
fn has_free_space_tree(superblock: &Superblock) -> bool {
    let both = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
    superblock.compat_ro_flags().contains(both)
}
