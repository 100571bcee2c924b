//! Items of trees, as `BTRFS_IOC_TREE_SEARCH` finds them.

use larder_btree::{ItemRef, Range};
use larder_format::Key;

use crate::error::{Error, Result};

/// An item of a tree.
#[derive(Clone, Debug)]
pub struct TreeItem {
    inner: ItemRef,
}

/// Iterates over items of a tree in the order of their keys. After an error it goes on with the
/// next item that can be read.
#[derive(Debug)]
pub struct TreeItems {
    pub(super) inner: Range,
}

impl TreeItem {
    /// Its key.
    pub fn key(&self) -> Key {
        self.inner.key()
    }

    /// The transaction that last wrote the leaf that it is in.
    pub fn generation(&self) -> u64 {
        self.inner.leaf().generation()
    }

    /// Its content.
    pub fn data(&self) -> &[u8] {
        self.inner.data()
    }
}

impl Iterator for TreeItems {
    type Item = Result<TreeItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.inner.next()?;
        Some(item.map(|inner| TreeItem { inner }).map_err(Error::from))
    }
}
