//! A place in a tree that changes.

use std::sync::Arc;

use larder_format::Key;

use super::live_tree::LiveTree;
use crate::block::Block;
use crate::error::TreeError;
use crate::item_ref::ItemRef;
use crate::live::search::search::Search;
use crate::readahead::{LiveWindow, Readahead};

/// A place in a tree that changes: at an item, before all items, or after all items.
///
/// The cursor holds no lock. It sees the items of a leaf as they were when it entered the leaf,
/// and searches from the root again when it moves to another leaf. Moves return whether the cursor
/// now stands at an item. A move that fails leaves it at the gap, as with a
/// [`Cursor`](crate::Cursor).
#[derive(Debug)]
pub struct LiveCursor {
    tree: Arc<LiveTree>,
    window: LiveWindow,
    position: Position,
}

#[derive(Debug)]
enum Position {
    Nowhere,
    BeforeAll,
    At(LeafPlace),
    AfterAll,
    /// At keys out of reach, with the bounds that the error gave.
    Damaged {
        direction: Direction,
        first: Option<Key>,
        upper: Option<Key>,
    },
}

#[derive(Debug)]
struct LeafPlace {
    leaf: Block,
    slot: usize,
    /// The first key after the leaf.
    upper: Option<Key>,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Forward,
    Back,
}

impl LiveTree {
    /// A cursor that stands nowhere yet. [`Readahead::ForwardAlways`] works as
    /// [`Readahead::Forward`].
    pub fn cursor(self: &Arc<Self>, readahead: Readahead) -> LiveCursor {
        let window = LiveWindow::new(readahead);
        LiveCursor { tree: self.clone(), window, position: Position::Nowhere }
    }
}

impl LiveCursor {
    /// Moves to the first item whose key is `key` or greater.
    pub fn seek(&mut self, key: Key) -> Result<bool, TreeError> {
        let mut from = Some(key);
        while let Some(key) = from {
            let place = self.enter(key, Direction::Forward)?;
            if place.slot < place.leaf.node().nritems() {
                self.position = Position::At(place);
                return Ok(true);
            }
            // Without this filter, a bound that is not after the key would make this loop endless.
            from = place.upper.filter(|upper| *upper > key);
        }
        self.position = Position::AfterAll;
        Ok(false)
    }

    /// As [`seek`](Self::seek), if the cursor's leaf had that item when the cursor entered the
    /// leaf; whether it had. If not, the cursor stays.
    pub fn seek_here(&mut self, key: Key) -> bool {
        let Position::At(place) = &mut self.position else { return false };
        let items = place.leaf.node().items();
        let slot = items.partition_point(|item| item.key.get() < key);
        let is_here = slot < items.len() && (slot > 0 || items[0].key.get() == key);
        if is_here {
            place.slot = slot;
        }
        is_here
    }

    /// Moves to the last item whose key is `key` or less.
    pub fn seek_last(&mut self, key: Key) -> Result<bool, TreeError> {
        let mut place = match self.enter(key, Direction::Back) {
            Ok(place) => place,
            // The tree leads smaller keys to its leftmost block, which has none of them.
            Err(error) if error.key.is_some_and(|first| first > key) => {
                self.position = Position::BeforeAll;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let node = place.leaf.node();
        let is_there = place.slot < node.nritems() && node.key(place.slot) == key;
        let slot = if is_there { Some(place.slot) } else { place.slot.checked_sub(1) };
        self.position = match slot {
            Some(slot) => {
                place.slot = slot;
                Position::At(place)
            }
            None => Position::BeforeAll,
        };
        Ok(slot.is_some())
    }

    /// Moves to the next item; from nowhere, to the first.
    #[allow(clippy::should_implement_trait, reason = "a cursor lends its items")]
    pub fn next(&mut self) -> Result<bool, TreeError> {
        match &mut self.position {
            Position::At(place) if place.slot + 1 < place.leaf.node().nritems() => {
                place.slot += 1;
                Ok(true)
            }
            _ => self.next_leaf(),
        }
    }

    /// Moves to the previous item; from nowhere, to the last.
    pub fn prev(&mut self) -> Result<bool, TreeError> {
        match &mut self.position {
            Position::At(place) if place.slot > 0 => {
                place.slot -= 1;
                Ok(true)
            }
            _ => self.prev_leaf(),
        }
    }

    /// Moves to the first item after the leaf.
    pub fn next_leaf(&mut self) -> Result<bool, TreeError> {
        let first = match &self.position {
            Position::Nowhere | Position::BeforeAll => Some(Key::MIN),
            Position::At(place) => place.upper,
            Position::AfterAll => None,
            Position::Damaged { direction: Direction::Forward, first, .. } => {
                Some(first.unwrap_or(Key::MIN))
            }
            Position::Damaged { upper, .. } => *upper,
        };
        self.seek_or_end(first)
    }

    /// Moves to the last item before the leaf.
    pub fn prev_leaf(&mut self) -> Result<bool, TreeError> {
        let last = match &self.position {
            Position::Nowhere | Position::AfterAll => Some(Key::MAX),
            Position::At(place) => place.leaf.node().first_key().and_then(Key::predecessor),
            Position::BeforeAll => None,
            Position::Damaged { direction: Direction::Back, upper, .. } => {
                Some(upper.and_then(Key::predecessor).unwrap_or(Key::MAX))
            }
            Position::Damaged { first, .. } => first.and_then(Key::predecessor),
        };
        self.seek_last_or_end(last)
    }

    /// After an error: moves past the keys out of reach, in the direction of the move that failed.
    /// In any other position it does nothing.
    pub fn skip_subtree(&mut self) -> Result<bool, TreeError> {
        match &self.position {
            Position::Damaged { direction: Direction::Forward, upper, .. } => {
                let upper = *upper;
                self.seek_or_end(upper)
            }
            Position::Damaged { direction: Direction::Back, first, .. } => {
                let last = first.and_then(Key::predecessor);
                self.seek_last_or_end(last)
            }
            position => Ok(matches!(position, Position::At(_))),
        }
    }

    /// The key of the item under the cursor.
    pub fn key(&self) -> Option<Key> {
        self.at().map(|place| place.leaf.node().key(place.slot))
    }

    /// The item under the cursor.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        self.at().map(|place| {
            let node = place.leaf.node();
            (node.key(place.slot), node.item_data(place.slot))
        })
    }

    /// The item under the cursor, to keep.
    pub fn item_ref(&self) -> Option<ItemRef> {
        self.at().map(|place| ItemRef::new(place.leaf.clone(), place.slot))
    }

    fn at(&self) -> Option<&LeafPlace> {
        match &self.position {
            Position::At(place) => Some(place),
            _ => None,
        }
    }

    fn seek_or_end(&mut self, first: Option<Key>) -> Result<bool, TreeError> {
        if let Some(first) = first {
            return self.seek(first);
        }
        self.position = Position::AfterAll;
        Ok(false)
    }

    fn seek_last_or_end(&mut self, last: Option<Key>) -> Result<bool, TreeError> {
        if let Some(last) = last {
            return self.seek_last(last);
        }
        self.position = Position::BeforeAll;
        Ok(false)
    }

    /// The leaf of `key` as it is now, and the place of the key in it.
    fn enter(&mut self, key: Key, direction: Direction) -> Result<LeafPlace, TreeError> {
        match Search::reading(&self.tree.state, key, &mut self.window).run_read() {
            Ok(path) => {
                Ok(LeafPlace { leaf: path.leaf().clone(), slot: path.slot(), upper: path.upper })
            }
            Err(error) => {
                let (first, upper) = (error.key, error.upper);
                self.position = Position::Damaged { direction, first, upper };
                Err(error)
            }
        }
    }
}
