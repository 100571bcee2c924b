//! Reading trees that change.

use larder_format::Key;

use super::live_tree::LiveTree;
use crate::error::TreeError;
use crate::item_ref::ItemRef;
use crate::live::search::search::Search;
use crate::live::search::target::Intent;

impl LiveTree {
    /// The result of `look` for the item with exactly this key. The leaf may be locked meanwhile:
    /// `look` may not use any tree.
    pub fn get_with<T>(
        &self,
        key: Key,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        let path = Search::new(&self.state, key, Intent::Read).run_read()?;
        Ok(path.found.then(|| look(path.leaf().node().item_data(path.slot()))))
    }

    /// A copy of the data of the item with exactly this key.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>, TreeError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// The item with exactly this key, as it is now. While the caller keeps it, the next writer to
    /// its leaf must copy the leaf.
    pub fn get_item(&self, key: Key) -> Result<Option<ItemRef>, TreeError> {
        let path = Search::new(&self.state, key, Intent::Read).run_read()?;
        Ok(path.found.then(|| ItemRef::new(path.leaf().clone(), path.slot())))
    }
}
