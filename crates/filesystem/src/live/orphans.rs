//! Inodes without a name, which are deleted once they are not open: in steps, so that a file of any
//! size takes little space in each transaction.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::{FileExtent, InodeItem};
use larder_format::{FormatError, ItemType, Key, objectid};
use larder_transaction::{DataExtent, DataOwner, Handle, Items, TransactionManager, TreeItems};
use parking_lot::Mutex;
use zerocopy::FromBytes;

use crate::changed::Changed;

/// Extents of a file that are deleted in one step, at most.
pub(crate) const EXTENTS_PER_STEP: u64 = 128;

/// Inodes that are not open any more.
pub(crate) struct Orphans {
    queue: Mutex<Vec<Orphan>>,
    manager: Arc<TransactionManager>,
}

/// An inode without a name.
pub(crate) struct Orphan {
    pub(crate) tree: Arc<LiveTree>,
    pub(crate) number: u64,
}

impl Orphans {
    pub(crate) fn new(manager: Arc<TransactionManager>) -> Self {
        Self { queue: Mutex::default(), manager }
    }

    /// Adds one. The next thread that deletes some, or the next commit in the background, deletes
    /// it.
    pub(crate) fn push(&self, orphan: Orphan) {
        self.queue.lock().push(orphan);
        self.manager.note_work();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Orphan> {
        self.queue.lock().pop()
    }
}

/// The key of the item that lists an inode without a name.
pub(crate) fn orphan_key(number: u64) -> Key {
    Key::new(objectid::ORPHAN, ItemType::ORPHAN_ITEM, number)
}

impl Orphan {
    /// Deletes everything of an inode that is not listed as an orphan, unless it has more than
    /// `most` extents. Returns whether it did.
    pub(crate) fn delete_whole(&self, handle: &Handle<'_>, most: u64) -> Changed<bool> {
        let extents = self.last_extents(most + 1)?;
        if extents.len() as u64 > most {
            return Ok(false);
        }
        self.delete_items()?;
        for (key, data) in &extents {
            let extent = FileExtent::parse(data).map_err(|problem| self.bad(*key, problem))?;
            self.give_up(handle, *key, &extent);
        }
        Ok(true)
    }

    /// Deletes the last extents, `most` of them, or all that is left if there are none. Returns
    /// whether nothing is left.
    pub(crate) fn delete_step(&self, handle: &Handle<'_>, most: u64) -> Changed<bool> {
        let extents = self.last_extents(most)?;
        let Some((first, _)) = extents.last() else {
            self.delete_rest()?;
            return Ok(true);
        };
        self.tree.delete_range(*first..=self.key(ItemType::EXTENT_DATA, u64::MAX))?;
        let mut covered_bytes = 0;
        for (key, data) in &extents {
            let extent = FileExtent::parse(data).map_err(|problem| self.bad(*key, problem))?;
            covered_bytes += self.give_up(handle, *key, &extent);
        }
        let (key, start) = (self.key(ItemType::INODE_ITEM, 0), first.offset);
        self.tree.modify(key, |data| {
            if let Ok((item, _)) = InodeItem::mut_from_prefix(data) {
                item.nbytes = item.nbytes.get().saturating_sub(covered_bytes).into();
                item.size = item.size.get().min(start).into();
            }
        })?;
        Ok(false)
    }

    /// Drops the reference of a file extent that is not in the tree any more. Returns the bytes
    /// that it counted for.
    fn give_up(&self, handle: &Handle<'_>, key: Key, extent: &FileExtent<'_>) -> u64 {
        let FileExtent::Regular { extent, .. } = extent else { return extent.num_bytes() };
        let Some(logical) = extent.disk_bytenr() else { return 0 };
        let data = DataExtent { logical, len_bytes: extent.disk_num_bytes.get() };
        let offset = key.offset.wrapping_sub(extent.offset.get());
        let owner = DataOwner { root: self.tree.id(), inode: self.number, offset };
        handle.drop_data_reference(data, owner);
        extent.num_bytes.get()
    }

    /// The last extents, the very last first, at most `most`.
    fn last_extents(&self, most: u64) -> Changed<Vec<(Key, Vec<u8>)>> {
        let mut extents = Vec::new();
        let mut cursor = self.tree.cursor(larder_btree::Readahead::Back);
        let mut is_there = cursor.seek_last(self.key(ItemType::EXTENT_DATA, u64::MAX))?;
        while let Some((key, data)) = cursor.item()
            && is_there
            && (key.objectid, key.item_type) == (self.number, ItemType::EXTENT_DATA)
            && (extents.len() as u64) < most
        {
            extents.push((key, data.to_vec()));
            is_there = cursor.prev()?;
        }
        Ok(extents)
    }

    fn delete_items(&self) -> Changed<()> {
        let (first, last) = (ItemType(0), ItemType(u8::MAX));
        self.tree.delete_range(self.key(first, 0)..=self.key(last, u64::MAX))?;
        Ok(())
    }

    fn delete_rest(&self) -> Changed<()> {
        self.delete_items()?;
        TreeItems::new(self.tree.clone()).remove(orphan_key(self.number))
    }

    pub(crate) fn key(&self, item_type: ItemType, offset: u64) -> Key {
        Key::new(self.number, item_type, offset)
    }

    fn bad(&self, key: Key, problem: FormatError) -> larder_transaction::Error {
        larder_transaction::Error::Item { tree: self.tree.id(), key, problem }
    }
}
