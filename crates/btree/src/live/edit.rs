//! Changes to an item that is there.

use larder_format::Key;

use super::error::ChangeError;
use super::intent::Intent;
use super::path::Path;
use super::search::Search;
use super::tree::LiveTree;

impl LiveTree {
    /// Changes the data of an item in place and returns what `change` returns. The leaf is locked
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

    /// Puts `data` in place of what an item has.
    pub fn replace(&self, key: Key, data: &[u8]) -> Result<(), ChangeError> {
        self.check_len(key, data.len())?;
        self.find_item(key, Intent::Replace { len: data.len() })?.replace_item(data);
        Ok(())
    }

    fn find_item(&self, key: Key, intent: Intent) -> Result<Path<'_>, ChangeError> {
        let path = Search::new(self, key, intent).run()?;
        if path.found { Ok(path) } else { Err(ChangeError::NotFound { tree: self.id(), key }) }
    }
}
