//! A place in a committed tree.
//!
//! # Invariants
//! - Each step of the path is the child that the step before points at with its slot.
//! - In the position `At`, and only then, the path ends in a leaf and its slot is an item.
//! - `Damaged`: the path ends in the node whose child cannot be read (or is empty, for the root),
//!   so that the walk can go on after that child.

use larder_format::Key;

use crate::block::Block;
use crate::error::TreeError;
use crate::item_ref::ItemRef;
use crate::readahead::{Asked, Readahead, Window};
use crate::tree::Tree;

/// A place in a committed tree: at an item, before all items, or after all items.
///
/// Moves return whether the cursor now stands at an item. A move that meets a block which it
/// cannot read returns an error and leaves the cursor at the gap. From there,
/// [`skip_subtree`](Self::skip_subtree) goes on after the gap, and a move in the same direction
/// tries the block again.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    window: Window,
    path: Vec<Step>,
    position: Position,
}

#[derive(Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// The first key after the block, as the path above has it.
    upper: Option<Key>,
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Nowhere,
    BeforeAll,
    At,
    AfterAll,
    Damaged(Direction),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

/// Which way a descent takes in each block.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// To the first item at or after the key.
    AtOrAfter(Key),
    /// To the last item at or before the key.
    AtOrBefore(Key),
    First,
    Last,
}

impl Tree {
    /// A cursor that stands nowhere yet.
    pub fn cursor(&self, readahead: Readahead) -> Cursor {
        let (tree, window) = (self.clone(), Window::new(readahead));
        Cursor { tree, window, path: Vec::new(), position: Position::Nowhere }
    }
}

impl Cursor {
    /// Moves to the first item whose key is `key` or greater.
    pub fn seek(&mut self, key: Key) -> Result<bool, TreeError> {
        self.ascend_to(key);
        self.aim_last_step(Aim::AtOrAfter(key));
        self.enter(Aim::AtOrAfter(key), Direction::Forward)
    }

    /// Moves to the last item whose key is `key` or less.
    pub fn seek_last(&mut self, key: Key) -> Result<bool, TreeError> {
        self.ascend_to(key);
        self.aim_last_step(Aim::AtOrBefore(key));
        self.enter(Aim::AtOrBefore(key), Direction::Back)
    }

    /// Moves to the next item; from nowhere, to the first.
    #[allow(clippy::should_implement_trait, reason = "a cursor lends its items")]
    pub fn next(&mut self) -> Result<bool, TreeError> {
        self.step(Direction::Forward)
    }

    /// Moves to the previous item; from nowhere, to the last.
    pub fn prev(&mut self) -> Result<bool, TreeError> {
        self.step(Direction::Back)
    }

    /// Moves to the first item of the next leaf.
    pub fn next_leaf(&mut self) -> Result<bool, TreeError> {
        match self.position {
            Position::At => self.advance(Direction::Forward),
            _ => self.next(),
        }
    }

    /// Moves to the last item of the previous leaf.
    pub fn prev_leaf(&mut self) -> Result<bool, TreeError> {
        match self.position {
            Position::At => self.advance(Direction::Back),
            _ => self.prev(),
        }
    }

    /// After an error: moves past the subtree that cannot be read, in the direction of the move
    /// that failed. In any other position it does nothing.
    pub fn skip_subtree(&mut self) -> Result<bool, TreeError> {
        match self.position {
            Position::Damaged(direction) => self.advance(direction),
            position => Ok(position == Position::At),
        }
    }

    /// The key of the item under the cursor.
    pub fn key(&self) -> Option<Key> {
        self.at().map(|step| step.block.node().key(step.slot))
    }

    /// The item under the cursor.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        self.at().map(|step| {
            let node = step.block.node();
            (node.key(step.slot), node.item_data(step.slot))
        })
    }

    /// The item under the cursor, to keep.
    pub fn item_ref(&self) -> Option<ItemRef> {
        self.at().map(|step| ItemRef::new(step.block.clone(), step.slot))
    }

    /// The leaf under the cursor.
    pub fn leaf(&self) -> Option<&Block> {
        self.at().map(|step| &step.block)
    }

    /// The tree that it walks.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn at(&self) -> Option<&Step> {
        (self.position == Position::At).then(|| self.path.last()).flatten()
    }

    /// Shortens the path to the deepest block that covers `key`, so that a near search starts
    /// near.
    fn ascend_to(&mut self, key: Key) {
        while self.path.len() > 1 && !self.path.last().is_some_and(|step| step.covers(key)) {
            self.path.pop();
        }
    }

    fn aim_last_step(&mut self, aim: Aim) {
        if let Some(step) = self.path.last_mut() {
            step.slot = slot_towards(&step.block, aim);
        }
    }

    fn step(&mut self, direction: Direction) -> Result<bool, TreeError> {
        match (self.position, direction) {
            (Position::Nowhere, Direction::Forward) => self.seek(Key::MIN),
            (Position::Nowhere, Direction::Back) => self.seek_last(Key::MAX),
            (Position::At, _) => match self.path.last_mut().and_then(|s| s.neighbour(direction)) {
                Some(()) => Ok(true),
                None => self.advance(direction),
            },
            (Position::BeforeAll, Direction::Back) | (Position::AfterAll, Direction::Forward) => {
                Ok(false)
            }
            (Position::BeforeAll | Position::AfterAll, _) => self.come_back(direction),
            (Position::Damaged(failed), _) if failed == direction => {
                self.enter(direction.aim(), direction)
            }
            (Position::Damaged(_), _) => self.advance(direction),
        }
    }

    /// From before or after all items to the outermost one, which the path still leads to.
    fn come_back(&mut self, direction: Direction) -> Result<bool, TreeError> {
        match self.path.last() {
            Some(step) if step.block.node().is_leaf() && step.block.node().nritems() > 0 => {
                self.position = Position::At;
                Ok(true)
            }
            _ => self.advance(direction),
        }
    }

    /// Moves to the nearest item in the next (or previous) block that the path has not entered:
    /// the next leaf, or the one after a damaged child.
    fn advance(&mut self, direction: Direction) -> Result<bool, TreeError> {
        let is_node = |step: &Step| step.block.level() > 0;
        let depth = self
            .path
            .iter_mut()
            .rposition(|step| is_node(step) && step.neighbour(direction).is_some());
        let Some(depth) = depth else {
            self.leave(direction);
            return Ok(false);
        };
        self.path.truncate(depth + 1);
        self.enter(direction.aim(), direction)
    }

    /// Stands after or before all items. The path still leads to the outermost one, as the way
    /// back.
    fn leave(&mut self, direction: Direction) {
        let (position, outermost) = match direction {
            Direction::Forward => (Position::AfterAll, Aim::Last),
            Direction::Back => (Position::BeforeAll, Aim::First),
        };
        self.position = position;
        if self.path.last().is_some_and(|step| step.block.level() == 0) {
            self.aim_last_step(outermost);
        }
    }

    /// Goes down from the end of the path to a leaf, then to the item that the aim asks for.
    fn enter(&mut self, aim: Aim, direction: Direction) -> Result<bool, TreeError> {
        self.position = Position::Damaged(direction);
        if self.path.is_empty() {
            let root = self.tree.root_block()?;
            self.push(root, None, aim);
        }
        while let Some(step) = self.path.last_mut()
            && step.block.level() > 0
        {
            let Step { block, slot, upper, asked } = step;
            let cache = self.tree.cache();
            self.window.before_fetch(cache, block, *slot, asked);
            let child = self.tree.child(block, *slot, *upper)?;
            if child.was_read {
                Window::after_read(cache, *slot, *asked);
            }
            let upper = block.child_upper(*slot, *upper);
            self.push(child.block, upper, aim);
        }
        self.position = Position::At;
        self.find_item(aim)
    }

    /// Moves on to the neighbouring leaf where this one has no item that the aim asks for.
    fn find_item(&mut self, aim: Aim) -> Result<bool, TreeError> {
        let Some(leaf) = self.path.last() else { return Ok(false) };
        let node = leaf.block.node();
        if leaf.slot >= node.nritems() {
            return self.advance(Direction::Forward);
        }
        match aim {
            Aim::AtOrBefore(key) if node.key(leaf.slot) > key => self.advance(Direction::Back),
            _ => Ok(true),
        }
    }

    fn push(&mut self, block: Block, upper: Option<Key>, aim: Aim) {
        let slot = slot_towards(&block, aim);
        self.path.push(Step { block, slot, upper, asked: Asked::default() });
    }
}

impl Step {
    fn covers(&self, key: Key) -> bool {
        self.block.node().first_key().is_some_and(|first| first <= key)
            && self.upper.is_none_or(|upper| key < upper)
    }

    /// Moves the slot by one, if there is one.
    fn neighbour(&mut self, direction: Direction) -> Option<()> {
        let slot = match direction {
            Direction::Forward => self.slot + 1,
            Direction::Back => self.slot.checked_sub(1)?,
        };
        (slot < self.block.node().nritems()).then(|| self.slot = slot)
    }
}

impl Direction {
    fn aim(self) -> Aim {
        match self {
            Self::Forward => Aim::First,
            Self::Back => Aim::Last,
        }
    }
}

/// In a node: the child to enter. In a leaf: the item, or one past the last if no item fits.
fn slot_towards(block: &Block, aim: Aim) -> usize {
    let node = block.node();
    match aim {
        Aim::AtOrAfter(key) if node.is_leaf() => node.search(key).unwrap_or_else(|slot| slot),
        Aim::AtOrAfter(key) | Aim::AtOrBefore(key) => node.child_slot(key),
        Aim::First => 0,
        Aim::Last => node.nritems().saturating_sub(1),
    }
}
