//! The trees of the last durable state, for readers without locks, while the file system goes on
//! changing.

use larder_btree::{Tree, TreeView};
use larder_format::objectid::ROOT_TREE;
use larder_format::{ItemType, Key};

use super::TransactionManager;
use crate::error::{Error, Result};
use crate::extent::committed_tree;
use crate::space::Keeping;

/// The trees of a durable state. As long as this lives, nothing that they lead to is used again,
/// unless programs need the space: a reader asks [`is_kept`](Self::is_kept) after it has read.
#[derive(Debug)]
pub struct KeptTrees {
    root_tree: Tree,
    /// None if nothing can change.
    keeping: Option<Keeping>,
}

impl TransactionManager {
    /// Keeps the last durable state. Waits for a commit in progress, and makes none.
    pub fn keep_trees(&self) -> KeptTrees {
        let _no_commit = self.lock_committing();
        let keeping = Some(Keeping::new(self.space()));
        KeptTrees { root_tree: self.durable_root_tree(), keeping }
    }
}

impl KeptTrees {
    /// Those of a file system that nothing changes, which has this root tree.
    pub fn of_committed(root_tree: Tree) -> Self {
        Self { root_tree, keeping: None }
    }

    /// The tree of tree roots.
    pub fn root_tree(&self) -> &Tree {
        &self.root_tree
    }

    /// The tree of this id.
    pub fn tree(&self, id: u64) -> Result<TreeView> {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        let found = committed_tree(&self.root_tree, id)?;
        Ok(found.ok_or(Error::MissingItem { tree: ROOT_TREE, key })?.1)
    }

    /// Whether the state was kept until now: then all that was read until now is of this state.
    pub fn is_kept(&self) -> bool {
        self.keeping.as_ref().is_none_or(Keeping::is_kept)
    }
}
