//! Reading trees, as `BTRFS_IOC_TREE_SEARCH` does, and finding the files for an address.

use std::ops::RangeInclusive;

use larder_filesystem::FilePlace;
use larder_format::{Key, Logical};

use crate::{Error, Filesystem, Result};

/// An item of a tree.
#[derive(Clone, Debug)]
pub struct TreeItem {
    inner: larder_btree::ItemRef,
}

/// Iterates over items of a tree in the order of their keys. After an error it goes on with the
/// next item that can be read.
#[derive(Debug)]
pub struct TreeItems {
    inner: larder_btree::Range,
}

impl Filesystem {
    /// The items of the tree with this id whose keys lie in `range`, as they are stored. Items that
    /// only commits write, such as roots of trees, are those of the last commit.
    pub fn tree_items(&self, tree: u64, range: RangeInclusive<Key>) -> Result<TreeItems> {
        Ok(TreeItems { inner: self.inner().items(tree, range)? })
    }

    /// The places in files that refer to the data at the logical address `logical`, in bytes, or
    /// with `of_whole_extent` to any data of its extent. In a file system that is open for writing
    /// this commits first.
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no extent,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is a tree block.
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
