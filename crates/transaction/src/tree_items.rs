//! A changing tree, edited one or several items at a time.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_btree::{ChangeError, LiveTree, Readahead};
use larder_format::Key;

use crate::error::{Error, Result};
use crate::items::{Items, Look};

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

    fn look_at_or_after(&self, keys: &[Key], look: &mut Look<'_>) -> Result<()> {
        let mut cursor = self.0.cursor(Readahead::None);
        for key in keys {
            if !cursor.seek_here(*key) {
                cursor.seek(*key)?;
            }
            look(*key, cursor.item());
        }
        Ok(())
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

    fn insert_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()> {
        Ok(self.0.insert_batch(items)?)
    }

    fn replace_batch(&mut self, items: &[(Key, &[u8])]) -> Result<()> {
        Ok(self.0.replace_batch(items)?)
    }

    fn remove_batch(&mut self, keys: &[Key]) -> Result<()> {
        let removed = self.0.delete_batch(keys)?;
        match keys.first() {
            Some(&key) if removed < keys.len() as u64 => {
                Err(Error::MissingItem { tree: self.tree(), key })
            }
            _ => Ok(()),
        }
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
