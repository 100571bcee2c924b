//! New items.

use larder_format::Key;
use larder_format::node::leaf_data_size;

use super::live_tree::LiveTree;
use crate::live::bytes::leaf::weight;
use crate::live::error::ChangeError;
use crate::live::path::path::Path;
use crate::live::search::search::Search;
use crate::live::search::target::Intent;

impl LiveTree {
    /// Inserts an item. Fails with [`ChangeError::Exists`] if there is one with this key.
    pub fn insert(&self, key: Key, data: &[u8]) -> Result<(), ChangeError> {
        self.insert_batch(&[(key, data)])
    }

    /// Inserts items whose keys ascend. Neighbours go into their leaf in one descent. After an
    /// error, the items before the one in the error are in the tree.
    pub fn insert_batch(&self, items: &[(Key, &[u8])]) -> Result<(), ChangeError> {
        self.check_batch(items)?;
        let mut rest = items;
        while !rest.is_empty() {
            rest = &rest[self.insert_some(rest)?..];
        }
        Ok(())
    }

    /// Inserts the item, or puts `data` in place of the data of the item with this key.
    pub fn put(&self, key: Key, data: &[u8]) -> Result<(), ChangeError> {
        self.state.check_len(key, data.len())?;
        let mut path = Search::new(&self.state, key, Intent::Put { len: data.len() }).run()?;
        if path.found {
            path.replace_item(data);
        } else {
            place(&mut path, &[(key, data)]);
        }
        Ok(())
    }

    /// Inserts as many of `items` as go into one leaf, at least one, and returns how many.
    fn insert_some(&self, items: &[(Key, &[u8])]) -> Result<usize, ChangeError> {
        let key = items[0].0;
        // The search splits a leaf only for items that surely go there: keys that differ only in
        // their offset follow one another, as entries of a directory do. Other items may belong
        // anywhere.
        let is_neighbour = |other: &Key| Key { offset: key.offset, ..*other } == key;
        let neighbours = items.iter().take_while(|(other, _)| is_neighbour(other)).count();
        let capacity = leaf_data_size(self.state.forest.nodesize());
        let (_, bytes) = prefix_that_fits(&items[..neighbours], capacity, Key::MAX);
        let mut path = Search::new(&self.state, key, Intent::Insert { bytes }).run()?;
        if path.found {
            return Err(ChangeError::Exists { tree: self.id(), key });
        }
        let (leaf, slot) = (path.leaf().node(), path.slot());
        // Items whose keys come after the next item, or in the next leaf, do not go here.
        let next = if slot < leaf.nritems() { Some(leaf.key(slot)) } else { path.upper };
        let last = next.and_then(Key::predecessor).unwrap_or(Key::MAX);
        let (count, _) = prefix_that_fits(items, leaf.leaf_free_space(), last);
        place(&mut path, &items[..count]);
        Ok(count)
    }

    /// Fails unless the keys ascend and each item fits a leaf.
    pub(super) fn check_batch(&self, items: &[(Key, &[u8])]) -> Result<(), ChangeError> {
        if let Some(pair) = items.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(ChangeError::OutOfOrder { tree: self.id(), key: pair[1].0 });
        }
        items.iter().try_for_each(|(key, data)| self.state.check_len(*key, data.len()))
    }
}

/// Puts items at the path's place in the leaf, which has room for them.
fn place(path: &mut Path<'_>, items: &[(Key, &[u8])]) {
    let slot = path.slot();
    let mut leaf = path.leaf_mut();
    leaf.insert(slot, items.iter().map(|(key, data)| (*key, data.len())));
    for (at, (_, data)) in items.iter().enumerate() {
        leaf.data(slot + at).copy_from_slice(data);
    }
    if slot == 0 {
        path.fix_first_keys(path.bottom());
    }
}

/// How many items, counted from the first, have keys up to `last` and fit into `free` bytes
/// together, and how many bytes they take. The first item counts in any case.
fn prefix_that_fits(items: &[(Key, &[u8])], free: usize, last: Key) -> (usize, usize) {
    let mut bytes = 0;
    let mut count = 0;
    for (key, data) in items {
        let more = bytes + weight(data.len());
        if count > 0 && (more > free || *key > last) {
            break;
        }
        (bytes, count) = (more, count + 1);
    }
    (count, bytes)
}
