//! Items in order, from one key to another.

use std::ops::{Bound, RangeBounds};

use larder_format::Key;

use crate::error::TreeError;
use crate::item_ref::ItemRef;
use crate::readahead::Readahead;
use crate::tree::Tree;
use crate::view::{TreeView, ViewCursor};

/// An iterator over the items of a range of keys.
///
/// After an error it goes on after the subtree that cannot be read.
#[derive(Debug)]
pub struct Range {
    cursor: ViewCursor,
    state: State,
    /// The greatest key of the range.
    last: Key,
}

#[derive(Debug)]
enum State {
    Before { first: Key },
    At,
    Damaged,
    Done,
}

impl Tree {
    /// The items whose keys lie in `range`, in order.
    pub fn range(&self, range: impl RangeBounds<Key>, readahead: Readahead) -> Range {
        Range::new(ViewCursor::Committed(self.cursor(readahead)), range)
    }
}

impl TreeView {
    /// The items whose keys lie in `range`, in order.
    pub fn range(&self, range: impl RangeBounds<Key>, readahead: Readahead) -> Range {
        Range::new(self.cursor(readahead), range)
    }
}

impl Range {
    fn new(cursor: ViewCursor, range: impl RangeBounds<Key>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(&key) => Some(key),
            Bound::Excluded(key) => key.successor(),
            Bound::Unbounded => Some(Key::MIN),
        };
        let last = match range.end_bound() {
            Bound::Included(&key) => Some(key),
            Bound::Excluded(key) => key.predecessor(),
            Bound::Unbounded => Some(Key::MAX),
        };
        let (state, last) = match (first, last) {
            (Some(first), Some(last)) => (State::Before { first }, last),
            _ => (State::Done, Key::MIN),
        };
        Self { cursor, state, last }
    }

    /// The next item, borrowed from its leaf.
    pub fn next_item(&mut self) -> Result<Option<(Key, &[u8])>, TreeError> {
        Ok(if self.advance()? { self.cursor.item() } else { None })
    }

    /// Moves to the next item of the range; whether there is one.
    fn advance(&mut self) -> Result<bool, TreeError> {
        let moved = match self.state {
            State::Before { first } => self.cursor.seek(first),
            State::At => self.cursor.next(),
            State::Damaged => self.cursor.skip_subtree(),
            State::Done => return Ok(false),
        };
        self.state = match moved {
            Ok(true) if self.cursor.key().is_some_and(|key| key <= self.last) => State::At,
            Ok(_) => State::Done,
            Err(ref error) if error.key.is_some_and(|key| key > self.last) => State::Done,
            Err(_) => State::Damaged,
        };
        match (&self.state, moved) {
            (State::Damaged, Err(error)) => Err(error),
            (state, _) => Ok(matches!(state, State::At)),
        }
    }
}

impl Iterator for Range {
    type Item = Result<ItemRef, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => self.cursor.item_ref().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
