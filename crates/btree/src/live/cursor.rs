//! A place in a tree that changes.

use larder_format::Key;

use super::error::ChangeError;
use super::search::{Intent, Search};
use super::tree::LiveTree;
use crate::block::Block;
use crate::item_ref::ItemRef;

/// A place in a tree that changes, at an item, or before or behind all items.
///
/// It holds no lock. The items of a leaf are seen as they were when the cursor entered the leaf;
/// moving to another leaf searches from the root again. Moves return whether the cursor now stands
/// at an item.
#[derive(Debug)]
pub struct LiveCursor<'t> {
    tree: &'t LiveTree,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    leaf: Block,
    slot: usize,
    /// The first key behind the leaf.
    upper: Option<Key>,
}

impl LiveTree {
    /// A cursor that stands nowhere yet.
    pub fn cursor(&self) -> LiveCursor<'_> {
        LiveCursor { tree: self, place: None }
    }
}

impl LiveCursor<'_> {
    /// Moves to the first item whose key is `key` or greater.
    pub fn seek(&mut self, key: Key) -> Result<bool, ChangeError> {
        let mut from = Some(key);
        while let Some(key) = from {
            let place = self.enter(key)?;
            if place.slot < place.leaf.node().nritems() {
                self.place = Some(place);
                return Ok(true);
            }
            // A bound that is not behind the key would make this loop.
            from = place.upper.filter(|upper| *upper > key);
        }
        self.place = None;
        Ok(false)
    }

    /// Moves to the last item whose key is `key` or less.
    pub fn seek_last(&mut self, key: Key) -> Result<bool, ChangeError> {
        let mut place = self.enter(key)?;
        let node = place.leaf.node();
        let is_there = place.slot < node.nritems() && node.key(place.slot) == key;
        let slot = if is_there { Some(place.slot) } else { place.slot.checked_sub(1) };
        self.place = slot.map(|slot| {
            place.slot = slot;
            place
        });
        Ok(self.place.is_some())
    }

    /// Moves to the next item; from nowhere, to the first.
    #[allow(clippy::should_implement_trait, reason = "a cursor lends its items")]
    pub fn next(&mut self) -> Result<bool, ChangeError> {
        let Some(place) = &mut self.place else { return self.seek(Key::MIN) };
        if place.slot + 1 < place.leaf.node().nritems() {
            place.slot += 1;
            return Ok(true);
        }
        self.next_leaf()
    }

    /// Moves to the previous item; from nowhere, to the last.
    pub fn prev(&mut self) -> Result<bool, ChangeError> {
        let Some(place) = &mut self.place else { return self.seek_last(Key::MAX) };
        if place.slot > 0 {
            place.slot -= 1;
            return Ok(true);
        }
        self.prev_leaf()
    }

    /// Moves to the first item behind the leaf.
    pub fn next_leaf(&mut self) -> Result<bool, ChangeError> {
        let Some(place) = &self.place else { return self.next() };
        match place.upper {
            Some(upper) => self.seek(upper),
            None => {
                self.place = None;
                Ok(false)
            }
        }
    }

    /// Moves to the last item before the leaf.
    pub fn prev_leaf(&mut self) -> Result<bool, ChangeError> {
        let Some(place) = &self.place else { return self.prev() };
        let before = place.leaf.node().first_key().and_then(Key::predecessor);
        match before {
            Some(before) => self.seek_last(before),
            None => {
                self.place = None;
                Ok(false)
            }
        }
    }

    /// The key of the item under the cursor.
    pub fn key(&self) -> Option<Key> {
        self.place.as_ref().map(|place| place.leaf.node().key(place.slot))
    }

    /// The item under the cursor.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        self.place.as_ref().map(|place| {
            let node = place.leaf.node();
            (node.key(place.slot), node.item_data(place.slot))
        })
    }

    /// The item under the cursor, to keep.
    pub fn item_ref(&self) -> Option<ItemRef> {
        self.place.as_ref().map(|place| ItemRef::new(place.leaf.clone(), place.slot))
    }

    /// The leaf of `key` as it is now, and where the key is or would be.
    fn enter(&self, key: Key) -> Result<Place, ChangeError> {
        let path = Search::new(self.tree, key, Intent::Read).run()?;
        Ok(Place { leaf: path.leaf().clone(), slot: path.slot(), upper: path.upper })
    }
}
