//! The log trees of the running transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_btree::{LiveTree, TreeRoot};

/// The log trees of the running transaction.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// The tree of log trees.
    pub(super) roots: Option<Arc<LiveTree>>,
    /// By subvolume.
    pub(super) trees: BTreeMap<u64, Log>,
    /// No more changes go into them before the next commit.
    pub(super) is_void: bool,
}

/// The log tree of a subvolume.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) tree: Arc<LiveTree>,
    /// The root according to the tree of log trees.
    pub(super) entered: Option<TreeRoot>,
}
