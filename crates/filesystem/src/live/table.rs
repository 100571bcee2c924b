//! The table of the inodes in memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use larder_btree::LiveTree;
use larder_format::item::InodeItem;
use larder_format::{ItemType, Key};
use parking_lot::Mutex;

use crate::cache::extent_map::{ExtentMap, ExtentMaps};
use crate::error::{Error, Result};
use crate::item::id::InodeId;
use crate::item::metadata::{FileType, parse_item};
use crate::live::delayed::table::DelayedInodes;
use crate::live::inode::LiveInode;
use crate::live::open::OpenInode;
use crate::live::orphans::Orphans;
use crate::live::subvolume::LiveSubvolume;

/// The number of shards, each with a lock.
const SHARDS: usize = 16;

/// The inodes in memory.
pub(crate) struct InodeTable {
    shards: [Mutex<Shard>; SHARDS],
    orphans: Arc<Orphans>,
    delayed: Arc<DelayedInodes>,
    extent_maps: Arc<ExtentMaps>,
}

/// A shard of the table.
#[derive(Default)]
struct Shard {
    inodes: HashMap<InodeId, Weak<LiveInode>>,
    /// How many inodes entered that were in a tree before.
    entries: u64,
}

/// How many inodes that were in a tree have entered each shard so far.
pub(crate) struct EntryCounts([u64; SHARDS]);

impl InodeTable {
    pub(crate) fn new(
        orphans: Arc<Orphans>,
        delayed: Arc<DelayedInodes>,
        extent_maps: Arc<ExtentMaps>,
    ) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), orphans, delayed, extent_maps }
    }

    /// The inode `number`, read if it is not in memory. An inode without a name is not found: only
    /// handles from before it lost its last name lead to it.
    pub(crate) fn open(&self, subvolume: &LiveSubvolume, number: u64) -> Result<OpenInode> {
        let id = InodeId { subvolume: subvolume.tree().id(), number };
        let mut shard = self.shard(id).lock();
        let known = shard.known(id);
        let live = if let Some(live) = known {
            live
        } else {
            // Under the lock: otherwise a thread that has the inode meanwhile could change the item
            // and be gone.
            let live = Arc::new(self.read(subvolume, id)?);
            shard.entries += 1;
            shard.remember(&live);
            live
        };
        drop(shard);
        OpenInode::open(live).ok_or(Error::NotFound)
    }

    /// An inode that is in memory, for a look: this does not keep it open.
    pub(crate) fn known(&self, id: InodeId) -> Option<Arc<LiveInode>> {
        self.shard(id).lock().known(id)
    }

    /// How many inodes have entered so far. If an inode is not [`known`](Self::known) after this,
    /// its items in the trees stay as they are until the inode [enters](Self::has_entries_since).
    pub(crate) fn entry_counts(&self) -> EntryCounts {
        EntryCounts(std::array::from_fn(|shard| self.shards[shard].lock().entries))
    }

    /// Whether this inode may have entered since they were counted.
    pub(crate) fn has_entries_since(&self, id: InodeId, before: &EntryCounts) -> bool {
        self.shard(id).lock().entries != before.0[shard_of(id)]
    }

    fn read(&self, subvolume: &LiveSubvolume, id: InodeId) -> Result<LiveInode> {
        let tree = subvolume.tree();
        let key = Key::new(id.number, ItemType::INODE_ITEM, 0);
        let bytes = tree.get(key)?.ok_or(Error::NotFound)?;
        let (item, file_type) =
            parse_item(&bytes).map_err(|problem| Error::item(tree.id(), key, problem))?;
        if item.nlink.get() == 0 {
            return Err(Error::NotFound);
        }
        Ok(self.new_inode(id, file_type, *item, tree.clone()))
    }

    /// Inserts an inode that was just created.
    pub(crate) fn create(
        &self,
        subvolume: &LiveSubvolume,
        number: u64,
        file_type: FileType,
        item: InodeItem,
    ) -> Result<OpenInode> {
        let id = InodeId { subvolume: subvolume.tree().id(), number };
        let tree = subvolume.tree().clone();
        let live = Arc::new(self.new_inode(id, file_type, item, tree));
        self.shard(id).lock().remember(&live);
        OpenInode::open(live).ok_or(Error::NotFound)
    }

    fn new_inode(
        &self,
        id: InodeId,
        file_type: FileType,
        item: InodeItem,
        tree: Arc<LiveTree>,
    ) -> LiveInode {
        let extents = ExtentMap::new(self.extent_maps.clone());
        LiveInode::new(
            id,
            file_type,
            item,
            tree,
            self.orphans.clone(),
            self.delayed.clone(),
            extents,
        )
    }

    fn shard(&self, id: InodeId) -> &Mutex<Shard> {
        &self.shards[shard_of(id)]
    }
}

impl Shard {
    fn known(&self, id: InodeId) -> Option<Arc<LiveInode>> {
        self.inodes.get(&id).and_then(Weak::upgrade)
    }

    fn remember(&mut self, live: &Arc<LiveInode>) {
        if self.inodes.len() == self.inodes.capacity() {
            self.inodes.retain(|_, live| live.strong_count() > 0);
        }
        self.inodes.insert(live.id(), Arc::downgrade(live));
    }
}

fn shard_of(id: InodeId) -> usize {
    (id.number ^ id.subvolume) as usize % SHARDS
}
