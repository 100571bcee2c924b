//! Looking into trees, as `BTRFS_IOC_TREE_SEARCH` does, and from addresses to files.

use std::ops::RangeInclusive;

use larder_filesystem::{Error as InnerError, FilePlace};
use larder_format::{Key, Logical};

use crate::{Filesystem, Result};

/// An item of a tree.
#[derive(Clone, Debug)]
pub struct TreeItem {
    inner: larder_btree::ItemRef,
}

/// Iterates over items of a tree in the order of their keys. After an error it goes on behind what cannot be
/// read.
#[derive(Debug)]
pub struct TreeItems {
    inner: larder_btree::Range,
}

impl Filesystem {
    /// The items of the tree with this id whose keys lie in `range`, as they are stored. What only commits
    /// write, such as roots of trees, is as the last one left it.
    pub fn tree_items(&self, tree: u64, range: RangeInclusive<Key>) -> Result<TreeItems> {
        Ok(TreeItems { inner: self.inner().items(tree, range)? })
    }

    /// Where in files the data at the logical address `logical` is seen, in bytes; with `of_whole_extent` any
    /// data of the extent that it lies in. In a file system that is open for writing this is a commit
    /// first.
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) where no extent is, [`InvalidInput`](crate::ErrorKind::InvalidInput)
    /// where a tree block is.
    pub fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>> {
        Ok(self.inner().places_of(Logical(logical), of_whole_extent)?)
    }
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

    /// What it holds.
    pub fn data(&self) -> &[u8] {
        self.inner.data()
    }
}

impl Iterator for TreeItems {
    type Item = Result<TreeItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.inner.next()?;
        Some(item.map(|inner| TreeItem { inner }).map_err(|error| InnerError::from(error).into()))
    }
}
