//! A changing tree, edited an item at a time.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_btree::{ChangeError, LiveTree, Readahead};
use larder_format::Key;

use crate::error::{Error, Result};
use crate::items::Items;

/// Items of a tree that changes.
#[derive(Clone, Debug)]
pub struct TreeItems(Arc<LiveTree>);

impl TreeItems {
    /// The items of `tree`.
    pub fn new(tree: Arc<LiveTree>) -> Self {
        Self(tree)
    }
}

impl Items for TreeItems {
    fn tree(&self) -> u64 {
        self.0.id()
    }

    fn get(&self, key: Key) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key)?)
    }

    fn at_or_before(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>> {
        let mut cursor = self.0.cursor(Readahead::None);
        cursor.seek_last(key)?;
        Ok(cursor.item().map(|(key, data)| (key, data.to_vec())))
    }

    fn at_or_after(&self, key: Key) -> Result<Option<(Key, Vec<u8>)>> {
        let mut cursor = self.0.cursor(Readahead::None);
        cursor.seek(key)?;
        Ok(cursor.item().map(|(key, data)| (key, data.to_vec())))
    }

    fn range(&self, keys: RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>> {
        let mut items = Vec::new();
        let mut cursor = self.0.cursor(Readahead::None);
        let mut is_there = cursor.seek(*keys.start())?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| is_there && key <= keys.end())
        {
            items.push((key, data.to_vec()));
            is_there = cursor.next()?;
        }
        Ok(items)
    }

    fn insert(&mut self, key: Key, data: &[u8]) -> Result<()> {
        Ok(self.0.insert(key, data)?)
    }

    fn replace(&mut self, key: Key, data: &[u8]) -> Result<()> {
        Ok(self.0.replace(key, data)?)
    }

    fn remove(&mut self, key: Key) -> Result<()> {
        let was_there = self.0.delete(key)?;
        if was_there { Ok(()) } else { Err(Error::MissingItem { tree: self.tree(), key }) }
    }
}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Tree(error) => error.into(),
            ChangeError::Space { tree, error } => match error.downcast::<Self>() {
                Ok(error) => *error,
                Err(error) => Self::Change(Arc::new(ChangeError::Space { tree, error })),
            },
            ChangeError::Exists { tree, key } => Self::ItemExists { tree, key },
            ChangeError::NotFound { tree, key } => Self::MissingItem { tree, key },
            error => Self::Change(Arc::new(error)),
        }
    }
}
