//! A tree as bookkeeping sees it: items by key.
//!
//! The extent tree, the free space tree, the checksum tree and the trees of chunks and devices are
//! edited through this trait only, so that every edit is also run against an ordered map in tests.

use std::ops::RangeInclusive;

use larder_format::Key;

use crate::error::Result;

/// Called with a key that was looked up, and the item that was found for it.
pub type Look<'a> = dyn FnMut(Key, Option<(Key, &[u8])>) + 'a;

/// A tree whose items are looked up and changed, one or several at a time.
///
/// While a thread reads an item and then changes it, no other thread changes items of that
/// objectid; see the lock order.
pub trait Items {
    /// Id of the tree, for messages.
    fn tree(&self) -> u64;

    /// The data of the item with exactly this key.
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>>;

    /// The last item whose key is `key` or less.
    fn at_or_before(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>>;

    /// Calls `look` with each of `keys`, which ascend, and the first item whose key is that or
    /// greater.
    fn look_at_or_after(&self, keys: &[Key], look: &mut Look<'_>) -> Result<()>;

    /// The first item whose key is `key` or greater.
    fn at_or_after(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>> {
        let mut found = None;
        self.look_at_or_after(&[key], &mut |_, item| {
            found = item.map(|(key, data)| (key, data.to_vec()));
        })?;
        Ok(found)
    }

    /// The items whose keys lie in `keys`, in order.
    fn range(&self, keys: RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>>;

    /// Inserts items, whose keys ascend. Fails if one of the keys exists.
    fn insert_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()>;

    /// Inserts an item. Fails if its key exists.
    fn insert(&mut self, key: Key, data: &[u8]) -> Result<()> {
        self.insert_batch(&[(key, data)])
    }

    /// Replaces the data of items, which may become longer or shorter, and whose keys ascend. Fails
    /// if one is missing.
    fn replace_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()>;

    /// Replaces the data of an item, which may become longer or shorter. Fails if it is missing.
    fn replace(&mut self, key: Key, data: &[u8]) -> Result<()> {
        self.replace_batch(&[(key, data)])
    }

    /// Removes the items with these keys, which ascend. Fails if one is missing, and names the
    /// first key then.
    fn remove_batch(&mut self, keys: &[Key]) -> Result<()>;

    /// Removes an item. Fails if it is missing.
    fn remove(&mut self, key: Key) -> Result<()> {
        self.remove_batch(&[key])
    }
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

        fn look_at_or_after(&self, keys: &[Key], look: &mut Look<'_>) -> Result<()> {
            assert!(keys.is_sorted());
            for key in keys {
                let found = self.items.range(*key..).next();
                look(*key, found.map(|(key, data)| (*key, &data[..])));
            }
            Ok(())
        }

        fn range(&self, keys: RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>> {
            Ok(self.items.range(keys).map(|(key, data)| (*key, data.clone())).collect())
        }

        fn insert_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()> {
            assert!(items.is_sorted_by(|a, b| a.0 < b.0));
            for (key, data) in items {
                self.edits += 1;
                if self.items.insert(*key, data.to_vec()).is_some() {
                    return Err(Error::ItemExists { tree: 0, key: *key });
                }
            }
            Ok(())
        }

        fn replace_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()> {
            assert!(items.is_sorted_by(|a, b| a.0 < b.0));
            for (key, data) in items {
                self.edits += 1;
                if self.items.insert(*key, data.to_vec()).is_none() {
                    return Err(Error::MissingItem { tree: 0, key: *key });
                }
            }
            Ok(())
        }

        fn remove_batch(&mut self, keys: &[Key]) -> Result<()> {
            assert!(keys.is_sorted_by(|a, b| a < b));
            for key in keys {
                self.edits += 1;
                if self.items.remove(key).is_none() {
                    return Err(Error::MissingItem { tree: 0, key: keys[0] });
                }
            }
            Ok(())
        }
    }
}
