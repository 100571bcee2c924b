//! Reading a tree, whether it changes or not.

use std::sync::Arc;

use larder_format::Key;

use crate::block::Block;
use crate::cursor::Cursor;
use crate::error::TreeError;
use crate::expected::Expected;
use crate::item_ref::ItemRef;
use crate::live::{LiveCursor, LiveTree};
use crate::readahead::Readahead;
use crate::root::TreeRoot;
use crate::tree::Tree;

/// A tree to read from.
#[derive(Clone, Debug)]
pub enum TreeView {
    /// A tree that stays as it was committed.
    Committed(Tree),
    /// A tree that other threads may change.
    Live(Arc<LiveTree>),
}

impl TreeView {
    /// The item with exactly this key.
    pub fn get(&self, key: Key) -> Result<Option<ItemRef>, TreeError> {
        match self {
            Self::Committed(tree) => tree.get(key),
            Self::Live(tree) => tree.get_item(key),
        }
    }

    /// The result of `look` for the item with exactly this key. The leaf may be locked meanwhile:
    /// `look` may not use any tree.
    pub fn get_with<T>(
        &self,
        key: Key,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        match self {
            Self::Committed(tree) => Ok(tree.get(key)?.map(|item| look(&item))),
            Self::Live(tree) => tree.get_with(key, look),
        }
    }

    /// Where the tree begins.
    pub fn root(&self) -> TreeRoot {
        match self {
            Self::Committed(tree) => tree.root(),
            Self::Live(tree) => tree.root(),
        }
    }

    /// The block that a pointer leads to, of this tree or of another one in the same state. Nothing
    /// changes that block meanwhile.
    pub fn look(&self, expected: &Expected) -> Result<Block, TreeError> {
        match self {
            Self::Committed(tree) => Ok(tree.cache().read(expected)?.block),
            Self::Live(tree) => tree.look(expected),
        }
    }

    /// The block at `level` on the way to `key`; none if the tree is lower. Nothing changes the tree
    /// meanwhile.
    pub fn block_at(&self, key: Key, level: u8) -> Result<Option<Block>, TreeError> {
        let root = self.root();
        if root.level < level {
            return Ok(None);
        }
        let mut block = self.look(&root.into())?;
        while block.level() > level {
            let slot = block.node().child_slot(key);
            block = self.look(&Expected::child(root.tree, block.node(), slot))?;
        }
        Ok(Some(block))
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(&self, readahead: Readahead) -> ViewCursor {
        match self {
            Self::Committed(tree) => ViewCursor::Committed(tree.cursor(readahead)),
            Self::Live(tree) => ViewCursor::Live(tree.cursor(readahead)),
        }
    }
}

/// A place in a tree, with the functions of [`Cursor`] and [`LiveCursor`].
#[derive(Debug)]
pub enum ViewCursor {
    /// In a tree that stays as it was committed.
    Committed(Cursor),
    /// In a tree that other threads may change.
    Live(LiveCursor),
}

macro_rules! forward {
    ($($(#[$meta:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        $($(#[$meta])*
        pub fn $name(&mut self, $($argument: $type),*) -> Result<bool, TreeError> {
            match self {
                Self::Committed(cursor) => cursor.$name($($argument),*),
                Self::Live(cursor) => cursor.$name($($argument),*),
            }
        })*
    };
}

impl ViewCursor {
    forward! {
        /// Moves to the first item whose key is `key` or greater.
        seek(key: Key);
        /// Moves to the last item whose key is `key` or less.
        seek_last(key: Key);
        /// Moves to the next item; from nowhere, to the first.
        #[allow(clippy::should_implement_trait, reason = "a cursor lends its items")]
        next();
        /// Moves to the previous item; from nowhere, to the last.
        prev();
        /// Moves to the first item of the next leaf.
        next_leaf();
        /// Moves to the last item of the previous leaf.
        prev_leaf();
        /// After an error: moves past the keys that cannot be read.
        skip_subtree();
    }

    /// As [`seek`](Self::seek), with less work if the cursor stands in the leaf that has exactly
    /// this key.
    pub fn seek_near(&mut self, key: Key) -> Result<bool, TreeError> {
        if let Self::Live(cursor) = self
            && cursor.seek_here(key)
        {
            return Ok(true);
        }
        self.seek(key)
    }

    /// The key of the item under the cursor.
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Committed(cursor) => cursor.key(),
            Self::Live(cursor) => cursor.key(),
        }
    }

    /// The item under the cursor.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        match self {
            Self::Committed(cursor) => cursor.item(),
            Self::Live(cursor) => cursor.item(),
        }
    }

    /// The item under the cursor, to keep.
    pub fn item_ref(&self) -> Option<ItemRef> {
        match self {
            Self::Committed(cursor) => cursor.item_ref(),
            Self::Live(cursor) => cursor.item_ref(),
        }
    }
}
