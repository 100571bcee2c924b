//! A tree as bookkeeping sees it: items by key.
//!
//! The extent tree, the free space tree, the checksum tree and the trees of chunks and devices are
//! edited through this trait only, so that every edit is also run against an ordered map in tests.

use std::ops::RangeInclusive;

use larder_format::Key;

use crate::error::Result;

/// A tree whose items are looked up and changed one at a time.
///
/// Whoever reads an item in order to change it is the only one to change items of that objectid
/// meanwhile; see the lock order.
pub trait Items {
    /// Id of the tree, for messages.
    fn tree(&self) -> u64;

    /// The data of the item with exactly this key.
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>>;

    /// The last item whose key is `key` or less.
    fn at_or_before(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>>;

    /// The first item whose key is `key` or greater.
    fn at_or_after(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>>;

    /// The items whose keys lie in `keys`, in order.
    fn range(&self, keys: RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>>;

    /// Inserts an item. Fails if there is one with this key.
    fn insert(&mut self, key: Key, data: &[u8]) -> Result<()>;

    /// Replaces the data of an item, which may become longer or shorter. Fails if there is none.
    fn replace(&mut self, key: Key, data: &[u8]) -> Result<()>;

    /// Removes an item. Fails if there is none.
    fn remove(&mut self, key: Key) -> Result<()>;
}

#[cfg(test)]
pub(crate) mod model {
    use std::collections::BTreeMap;

    use super::*;
    use crate::error::Error;

    /// A tree that is an ordered map.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct ModelTree {
        pub(crate) items: BTreeMap<Key, Vec<u8>>,
        /// How many times it was changed.
        pub(crate) edits: usize,
    }

    impl Items for ModelTree {
        fn tree(&self) -> u64 {
            0
        }

        fn get(&self, key: Key) -> Result<Option<Vec<u8>>> {
            Ok(self.items.get(&key).cloned())
        }

        fn at_or_before(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>> {
            Ok(self.items.range(..=key).next_back().map(|(key, data)| (*key, data.clone())))
        }

        fn at_or_after(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>> {
            Ok(self.items.range(key..).next().map(|(key, data)| (*key, data.clone())))
        }

        fn range(&self, keys: RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>> {
            Ok(self.items.range(keys).map(|(key, data)| (*key, data.clone())).collect())
        }

        fn insert(&mut self, key: Key, data: &[u8]) -> Result<()> {
            self.edits += 1;
            match self.items.insert(key, data.to_vec()) {
                None => Ok(()),
                Some(_) => Err(Error::ItemExists { tree: 0, key }),
            }
        }

        fn replace(&mut self, key: Key, data: &[u8]) -> Result<()> {
            self.edits += 1;
            match self.items.insert(key, data.to_vec()) {
                Some(_) => Ok(()),
                None => Err(Error::MissingItem { tree: 0, key }),
            }
        }

        fn remove(&mut self, key: Key) -> Result<()> {
            self.edits += 1;
            match self.items.remove(&key) {
                Some(_) => Ok(()),
                None => Err(Error::MissingItem { tree: 0, key }),
            }
        }
    }
}
