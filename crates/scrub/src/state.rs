//! The state of a file system that a scrub walks.

use std::sync::Arc;

use larder_btree::{Tree, TreeView};
use larder_format::item::BackRef;
use larder_format::{Logical, objectid};
use larder_transaction::extent::{FoundExtent, extent_at};
use larder_transaction::{KeptTrees, Result, TransactionManager};
use larder_volume::{Geometry, Volume};

/// A file system to scrub.
pub enum Target<'m> {
    /// One that is open for writing.
    Live(&'m TransactionManager),
    /// One that nothing changes.
    Committed {
        /// Its devices.
        volume: &'m Volume,
        /// Its tree of tree roots.
        root_tree: Tree,
    },
}

/// A durable state, and the geometry in which it lies.
pub(crate) struct State {
    kept: KeptTrees,
    pub(crate) extents: TreeView,
    pub(crate) checksums: TreeView,
    pub(crate) geometry: Arc<Geometry>,
}

impl Target<'_> {
    pub(crate) fn volume(&self) -> &Volume {
        match self {
            Self::Live(manager) => manager.volume(),
            Self::Committed { volume, .. } => volume,
        }
    }

    /// The manager, if anything may be repaired.
    pub(crate) fn manager(&self) -> Option<&TransactionManager> {
        match self {
            Self::Live(manager) => Some(manager),
            Self::Committed { .. } => None,
        }
    }

    /// The last durable state.
    pub(crate) fn state(&self) -> Result<State> {
        let kept = match self {
            Self::Live(manager) => manager.keep_trees(),
            Self::Committed { root_tree, .. } => KeptTrees::of_committed(root_tree.clone()),
        };
        // Taken after the state: a chunk of a kept state stays in the geometry.
        let geometry = self.volume().geometry();
        let extents = kept.tree(objectid::EXTENT_TREE)?;
        let checksums = kept.tree(objectid::CSUM_TREE)?;
        Ok(State { kept, extents, checksums, geometry })
    }
}

impl State {
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_kept()
    }

    /// The extent that contains `logical`.
    pub(crate) fn extent_at(&self, logical: Logical, nodesize: u32) -> Result<Option<FoundExtent>> {
        extent_at(&self.extents, nodesize, logical)
    }

    /// The tree that has a tree block, or one of them.
    pub(crate) fn tree_of(&self, logical: Logical, nodesize: u32) -> Option<u64> {
        let extent = self.extent_at(logical, nodesize).ok()??;
        extent.references(&self.extents).find_map(|reference| match reference {
            Ok(BackRef::TreeBlock { root }) => Some(root),
            _ => None,
        })
    }
}
