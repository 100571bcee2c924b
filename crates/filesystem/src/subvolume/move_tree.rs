//! Writing the tree of a subvolume elsewhere, whether it can change or not.

use larder_btree::Readahead;
use larder_format::Key;
use larder_transaction::space::Priority;

use crate::changed::apply;
use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;

impl Filesystem {
    /// Copies each block of a subvolume's tree to another place: it has the same content there. No
    /// thread changes the subvolume meanwhile.
    #[doc(hidden)]
    pub fn move_tree(&self, id: u64) -> Result<()> {
        let writer = self.writer()?;
        let tree = writer.manager.trees().open(id)?.ok_or(Error::NoSuchSubvolume(id))?;
        let nodesize = u64::from(self.volume().nodesize());
        let mut cursor = tree.cursor(Readahead::Forward);
        let mut moved = Vec::new();
        let mut is_there = cursor.seek(Key::MIN)?;
        while let Some(item) = cursor.item_ref().filter(|_| is_there) {
            let old = item.leaf().logical().0;
            let handle = writer.manager.start(1, Priority::Normal)?;
            apply(&handle, || Ok(tree.modify(item.key(), |_| ())?))?;
            handle.end()?;
            moved.push(old..old + nodesize);
            is_there = cursor.next_leaf()?;
        }
        moved.sort_unstable_by_key(|range| range.start);
        writer.manager.quiesce().moved(&moved);
        Ok(())
    }
}
