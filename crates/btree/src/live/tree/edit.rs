//! Changes to an item that is there.

use larder_format::{Key, Node};

use super::live_tree::LiveTree;
use crate::live::bytes::leaf::{Keep, weight};
use crate::live::error::ChangeError;
use crate::live::path::path::Path;
use crate::live::search::search::Search;
use crate::live::search::target::Intent;

impl LiveTree {
    /// Changes the data of an item in place and returns the result of `change`. The leaf is locked
    /// meanwhile: `change` may not use any tree.
    pub fn modify<T>(
        &self,
        key: Key,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, ChangeError> {
        let mut path = self.find_item(key, Intent::Modify)?;
        let slot = path.slot();
        Ok(change(path.leaf_mut().data(slot)))
    }

    /// Puts `data` in place of an item's data.
    pub fn replace(&self, key: Key, data: &[u8]) -> Result<(), ChangeError> {
        self.replace_batch(&[(key, data)])
    }

    /// Puts new data in place of the data of items whose keys ascend. One descent changes the
    /// items of one leaf, up to the first that the leaf has no room for. The next descent makes
    /// room for that item, and goes on from there. After an error, the items before the one in the
    /// error have their new data.
    pub fn replace_batch(&self, items: &[(Key, &[u8])]) -> Result<(), ChangeError> {
        self.check_batch(items)?;
        let mut rest = items;
        while !rest.is_empty() {
            rest = &rest[self.replace_some(rest)?..];
        }
        Ok(())
    }

    /// Replaces as many of `items` as one leaf has, and has room for: at least one. Returns how
    /// many.
    fn replace_some(&self, items: &[(Key, &[u8])]) -> Result<usize, ChangeError> {
        let (key, data) = items[0];
        let mut path = self.find_item(key, Intent::Replace { len: data.len() })?;
        let fitting = replacements_that_fit(path.leaf().node(), path.slot(), items);
        path.leaf_mut().replace(&fitting);
        Ok(fitting.len())
    }

    /// Appends `more` to an item.
    pub fn extend(&self, key: Key, more: &[u8]) -> Result<(), ChangeError> {
        let mut path = self.find_item(key, Intent::Grow { bytes: more.len() })?;
        let slot = path.slot();
        let mut leaf = path.leaf_mut();
        leaf.extend(slot, more.len());
        let data = leaf.data(slot);
        let old_len = data.len() - more.len();
        data[old_len..].copy_from_slice(more);
        Ok(())
    }

    /// Cuts an item to `len` bytes. A shorter item stays as it is.
    pub fn truncate(&self, key: Key, len: usize, keep: Keep) -> Result<(), ChangeError> {
        let mut path = self.find_item(key, Intent::Modify)?;
        let slot = path.slot();
        if path.leaf().node().item_data(slot).len() > len {
            path.leaf_mut().truncate(slot, len, keep);
            drop(path);
            self.merge_if_small(key);
        }
        Ok(())
    }

    /// Splits an item: the bytes after its first `len` get `new_key`, which must come next.
    ///
    /// # Panics
    /// When the item is shorter.
    pub fn split_item(&self, key: Key, len: usize, new_key: Key) -> Result<(), ChangeError> {
        let mut path = self.find_item(key, Intent::Grow { bytes: weight(0) })?;
        check_follows(&path, new_key)?;
        let slot = path.slot();
        path.leaf_mut().split_item(slot, new_key, len);
        Ok(())
    }

    /// Inserts a copy of an item under `new_key`, which must come next.
    pub fn duplicate_item(&self, key: Key, new_key: Key) -> Result<(), ChangeError> {
        let mut path = self.find_item(key, Intent::Duplicate)?;
        check_follows(&path, new_key)?;
        let slot = path.slot();
        let data = path.leaf().node().item_data(slot).to_vec();
        let mut leaf = path.leaf_mut();
        leaf.insert(slot + 1, std::iter::once((new_key, data.len())));
        leaf.data(slot + 1).copy_from_slice(&data);
        Ok(())
    }

    /// Gives an item another key, between its neighbours' keys.
    pub fn set_key(&self, key: Key, new_key: Key) -> Result<(), ChangeError> {
        let mut path = self.find_item(key, Intent::SetKey)?;
        let slot = path.slot();
        check_precedes_next(&path, new_key)?;
        if slot > 0 && path.leaf().node().key(slot - 1) >= new_key {
            return Err(ChangeError::OutOfOrder { tree: self.id(), key: new_key });
        }
        if slot == 0 && new_key < key {
            // The place of the new key may be in the leaf before, which this thread does not hold.
            let data = path.leaf().node().item_data(slot).to_vec();
            drop(path);
            self.insert(new_key, &data)?;
            self.delete(key)?;
            return Ok(());
        }
        path.leaf_mut().set_key(slot, new_key);
        if slot == 0 {
            path.fix_first_keys(path.bottom());
        }
        Ok(())
    }

    fn find_item<'t>(&'t self, key: Key, intent: Intent<'t>) -> Result<Path<'t>, ChangeError> {
        let path = Search::new(&self.state, key, intent).run()?;
        if path.found { Ok(path) } else { Err(ChangeError::NotFound { tree: self.id(), key }) }
    }
}

/// Whether `key` may stand right after the item under the path.
fn check_follows(path: &Path<'_>, key: Key) -> Result<(), ChangeError> {
    if path.leaf().node().key(path.slot()) >= key {
        return Err(ChangeError::OutOfOrder { tree: path.tree.id, key });
    }
    check_precedes_next(path, key)
}

/// Whether `key` is less than the key after the item under the path.
fn check_precedes_next(path: &Path<'_>, key: Key) -> Result<(), ChangeError> {
    let (leaf, next) = (path.leaf().node(), path.slot() + 1);
    let bound = if next < leaf.nritems() { Some(leaf.key(next)) } else { path.upper };
    if bound.is_some_and(|bound| key >= bound) {
        return Err(ChangeError::OutOfOrder { tree: path.tree.id, key });
    }
    Ok(())
}

/// The slots of `items`, the first of which is at `slot`, with their new data: up to the first
/// item that the leaf does not have, or has no room for.
fn replacements_that_fit<'d>(
    leaf: Node<'_>,
    slot: usize,
    items: &[(Key, &'d [u8])],
) -> Vec<(usize, &'d [u8])> {
    let mut fitting = Vec::with_capacity(items.len());
    let (mut free, mut next) = (leaf.leaf_free_space(), slot);
    for (key, data) in items {
        let rest = &leaf.items()[next..];
        let Ok(ahead) = rest.binary_search_by(|item| item.key.get().cmp(key)) else { break };
        let room = free + rest[ahead].size.get() as usize;
        let Some(left) = room.checked_sub(data.len()) else { break };
        fitting.push((next + ahead, *data));
        (free, next) = (left, next + ahead + 1);
    }
    fitting
}
