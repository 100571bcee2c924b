//! Transactions: many threads change trees, commits make what they did durable.
//!
//! # Invariants
//! - Whoever changes a tree is inside the door: it has a [`Handle`], or closed the door itself.
//! - Space is promised before a change begins; inside, only a broken file system or device fails.
//! - After an abort nothing is written any more.

mod abort;
mod accounting;
mod bookkeeping;
mod cleaning;
mod commit;
mod create;
mod device_errors;
mod door;
mod drop_tree;
mod handle;
mod interval;
mod ladder;
mod load;
mod resync;
mod roots;
mod snapshot;
mod sound;
mod superblock;

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use larder_btree::{BlockCache, BlockIdentity, Forest, LiveTree, Tree, TreeRoot};
use larder_format::feature::IncompatFlags;
use larder_format::item::RootItem;
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, QUOTA_TREE,
};
use larder_format::{ItemType, Key, Superblock, Uuid};
use larder_volume::{DeviceErrors, Volume};
use parking_lot::{Mutex, MutexGuard, RwLock};

use self::abort::AbortOnUnwind;
use self::accounting::Accounting;
use self::cleaning::Cleanings;
use self::door::Door;
use self::ladder::Lines;
use self::load::SystemTrees;
use self::roots::Roots;
use crate::error::{Error, Result};
use crate::extent::{ChecksumItems, ExtentItems};
use crate::items::Items;
use crate::log::Logs;
use crate::quota::Quotas;
use crate::space::Space;
use crate::tree_items::TreeItems;

pub(crate) use roots::parse_root;

pub use abort::Aborted;
pub use cleaning::Cleaning;
pub use handle::{DataExtent, DataOwner, Handle};
pub use interval::BackgroundCommits;
pub use ladder::MakesRoom;
pub use snapshot::NewSnapshot;

/// What takes part in commits: the file system's own queues.
pub trait CommitHook: Send + Sync {
    /// A commit is about to begin. Others go on meanwhile. What is done here must not need a commit:
    /// it reserves with [`Space::try_reserve`] and joins with [`TransactionManager::join_with`] or
    /// [`attach`](TransactionManager::attach). An error is that of the commit, and nothing else comes
    /// of it.
    fn before_commit(&self, manager: &TransactionManager) -> Result<()>;

    /// The door is closed: what this state shall have must be in the trees when this returns. An
    /// error makes the file system read-only.
    fn in_commit(&self, exclusive: &Exclusive<'_>) -> Result<()>;

    /// The state of this generation is durable.
    fn committed(&self, generation: u64);

    /// Whether there is something that the commit, which is closing the door, has not taken: if not, the next
    /// in the background waits until somebody joins.
    fn has_more(&self) -> bool {
        false
    }
}

/// The closed door: nobody else changes any tree while this lives.
#[derive(Debug)]
pub struct Exclusive<'m> {
    manager: &'m TransactionManager,
    _unwinding: AbortOnUnwind<'m>,
    closed: door::Closed<'m>,
}

impl Exclusive<'_> {
    /// The manager whose door is closed.
    pub fn manager(&self) -> &TransactionManager {
        self.manager
    }
}

/// The transactional engine of one file system that is open for writing.
pub struct TransactionManager {
    volume: Arc<Volume>,
    forest: Forest,
    accounting: Arc<Accounting>,
    trees: SystemTrees,
    root_tree: Arc<LiveTree>,
    chunk_tree: Arc<LiveTree>,
    chunk_tree_uuid: Uuid,
    quota_tree: Option<Arc<LiveTree>>,
    roots: Mutex<Roots>,
    /// The superblock of the last commit, with what is to change in the next.
    superblock: Mutex<Box<Superblock>>,
    superblock_is_dirty: AtomicBool,
    /// The superblock of the last commit as it was written.
    durable_superblock: Mutex<Box<Superblock>>,
    /// The logs of the running transaction.
    logs: Mutex<Logs>,
    door: Door,
    cleanings: Cleanings,
    lines: Lines,
    /// Held by the one who commits.
    committing: Mutex<()>,
    /// Held by the one who edits the trees of bookkeeping.
    bookkeeping: Mutex<()>,
    /// Held by the one who edits the checksum tree.
    checksums: Mutex<()>,
    /// The errors of devices that the items say, in the order of devices.
    device_errors: Mutex<Vec<DeviceErrors>>,
    durable_root: RwLock<TreeRoot>,
    durable_generation: AtomicU64,
    /// Whether devices are told what is needed no more.
    discards: AtomicBool,
    /// When this opened file system made its last commit, if it made one.
    committed_at: Mutex<Option<SystemTime>>,
    aborted: OnceLock<Aborted>,
    hooks: RwLock<Vec<Arc<dyn CommitHook>>>,
    steps: RwLock<Vec<Arc<dyn MakesRoom>>>,
}

impl TransactionManager {
    /// Opens the file system on `volume` for writing; `cache` is over the same volume. What devices
    /// missed that were not there is copied to them; nothing else is written before the first commit.
    /// That comes at once if devices are missing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] says why a sound file system can only be read, [`Error::Unsound`] what is
    /// damaged that commits need.
    pub fn open(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        if volume.superblock().log_root.get() != 0 {
            return Err(Error::ReadOnly("a crash left a log tree, which is to be replayed first"));
        }
        let manager = Self::load(volume, cache)?;
        manager.see_to_devices()?;
        Ok(manager)
    }

    /// Opens a file system of which log trees may be left.
    pub(crate) fn load(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        load::check_writable(&volume)?;
        Self::load_trees(volume, cache).map_err(Error::while_opening)
    }

    fn load_trees(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        let superblock = Box::new(volume.superblock().clone());
        let mut roots = Roots::default();
        for (key, item) in load::read_roots(&cache, &superblock)? {
            roots.open(key, &item);
        }
        let chunk_root = TreeRoot::of_chunk_tree(&superblock);
        let chunk_tree_uuid =
            Tree::new(cache.clone(), chunk_root).root_block()?.header().chunk_tree_uuid;
        let identity = BlockIdentity {
            fsid: superblock.metadata_uuid(),
            chunk_tree_uuid: Uuid::from_bytes(chunk_tree_uuid),
        };
        let generation = superblock.generation.get() + 1;
        let skinny = superblock.has_incompat(IncompatFlags::SKINNY_METADATA);

        let space = Arc::new(Space::new(volume.clone()));
        let accounting = Arc::new(Accounting::new(space.clone(), volume.nodesize(), skinny));
        let forest = Forest::new(cache, accounting.clone(), identity, generation);
        let trees = open_system_trees(&forest, &roots);
        sound::check(forest.cache(), &trees, &volume.chunks())?;
        accounting.set_extent_tree(&trees.extent);
        space.note_level(superblock.root_level);
        forest.trees().iter().for_each(|tree| space.note_level(tree.root().level));
        space.load(&load::load_groups(&volume, &forest, &trees)?)?;
        let device_errors = device_errors::load(&volume, &TreeItems::new(trees.dev.clone()))?;
        let quota_tree = open_listed(&forest, &roots, QUOTA_TREE);
        if let Some(tree) = quota_tree.clone().map(TreeItems::new)
            && let Some(quotas) = Quotas::load(&tree, volume.nodesize())?
        {
            accounting.set_quotas(quotas);
        }
        let durable_root = TreeRoot::of_root_tree(&superblock);
        Ok(Self {
            root_tree: forest.open_tree(durable_root, 0),
            chunk_tree: forest.open_tree(chunk_root, 0),
            chunk_tree_uuid: identity.chunk_tree_uuid,
            quota_tree,
            volume,
            forest,
            accounting,
            trees,
            roots: Mutex::new(roots),
            durable_generation: AtomicU64::new(superblock.generation.get()),
            device_errors: Mutex::new(device_errors),
            durable_root: RwLock::new(durable_root),
            discards: AtomicBool::new(false),
            durable_superblock: Mutex::new(superblock.clone()),
            superblock: Mutex::new(superblock),
            superblock_is_dirty: AtomicBool::new(false),
            logs: Mutex::default(),
            door: Door::default(),
            cleanings: Cleanings::default(),
            lines: Lines::default(),
            committing: Mutex::default(),
            bookkeeping: Mutex::default(),
            checksums: Mutex::default(),
            committed_at: Mutex::default(),
            aborted: OnceLock::new(),
            hooks: RwLock::default(),
            steps: RwLock::default(),
        })
    }

    /// The devices.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The trees that change.
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// Whether devices are told what space is needed no more, once a commit is durable: not, unless set.
    pub fn set_discards(&self, discards: bool) {
        self.discards.store(discards, Relaxed);
    }

    /// Bytes of tree blocks that were changed and are on no device yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.forest.stats().dirty_blocks * u64::from(self.volume.nodesize())
    }

    /// Block groups and promises.
    pub fn space(&self) -> &Arc<Space> {
        &self.accounting.space
    }

    /// What subvolumes refer to and their limits, if quotas are on.
    pub fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.accounting.quotas()
    }

    /// The running transaction.
    pub fn generation(&self) -> u64 {
        self.forest.generation()
    }

    /// The tree of tree roots as the last durable state has it, for readers without locks.
    pub fn durable_root_tree(&self) -> Tree {
        Tree::new(self.forest.cache().clone(), *self.durable_root.read())
    }

    /// The tree of tree roots. Its root items are changed with
    /// [`change_root_item`](Self::change_root_item) only.
    pub fn root_tree(&self) -> &Arc<LiveTree> {
        &self.root_tree
    }

    /// The tree of this id, opened by its root item if it is not open yet; `None` if there is none.
    pub fn tree(&self, id: u64) -> Result<Option<Arc<LiveTree>>> {
        if let Some(tree) = self.forest.tree(id) {
            return Ok(Some(tree));
        }
        let last = Key::new(id, ItemType::ROOT_ITEM, u64::MAX);
        let found = TreeItems::new(self.root_tree.clone()).at_or_before(last)?;
        let Some((key, data)) =
            found.filter(|(key, _)| (key.objectid, key.item_type) == (id, ItemType::ROOT_ITEM))
        else {
            return Ok(None);
        };
        let item = parse_root(key, &data)?;
        // Under the lock, so that a tree that is being dropped is not opened again half way.
        let mut roots = self.roots.lock();
        roots.open(key, &item);
        let (_, item) = roots.get(id).expect("it was just opened");
        let root = TreeRoot::of_item(id, item);
        self.space().note_level(root.level);
        Ok(Some(self.forest.open_tree(root, item.last_snapshot.get())))
    }

    /// The root item of a tree that is open, but for where the tree begins, and its key.
    pub fn root_item(&self, tree: u64) -> Option<(Key, RootItem)> {
        self.roots.lock().get(tree).map(|(key, item)| (key, *item))
    }

    /// Changes the root item of a tree that is open; the next commit writes it. Returns what
    /// `change` returns, or `None` if the tree is not open.
    pub fn change_root_item<T>(
        &self,
        _handle: &Handle<'_>,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.roots.lock().change(tree, change)
    }

    /// Changes the superblock that the next commit writes: label, features, the default fields that
    /// commits do not set themselves.
    pub fn change_superblock<T>(&self, change: impl FnOnce(&mut Superblock) -> T) -> T {
        let changed = change(&mut self.superblock.lock());
        self.superblock_is_dirty.store(true, std::sync::atomic::Ordering::Release);
        self.note_work();
        changed
    }

    /// The superblock of the last commit, with what is to change in the next.
    pub fn superblock(&self) -> Superblock {
        (**self.superblock.lock()).clone()
    }

    /// Has commits in the background go on: there is something to do. Whoever joins or changes the superblock
    /// need not say so.
    pub fn note_work(&self) {
        self.accounting.alarm.note_work();
    }

    /// Has `hook` take part in commits, after those that do already.
    pub fn add_hook(&self, hook: Arc<dyn CommitHook>) {
        self.hooks.write().push(hook);
    }

    /// Adds a step to the flushing ladder, behind those that are there and before delayed references
    /// and commit.
    pub fn add_step(&self, step: Arc<dyn MakesRoom>) {
        self.steps.write().push(step);
    }

    /// Waits for the commit that is being made, and keeps others from beginning.
    pub(crate) fn lock_committing(&self) -> MutexGuard<'_, ()> {
        self.committing.lock()
    }

    pub(crate) fn logs(&self) -> &Mutex<Logs> {
        &self.logs
    }

    pub(crate) fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    pub(crate) fn durable_superblock(&self) -> Box<Superblock> {
        self.durable_superblock.lock().clone()
    }

    /// Whether the next commit changes what commits do not set themselves in the superblock.
    pub(crate) fn has_dirty_superblock(&self) -> bool {
        self.superblock_is_dirty.load(Acquire)
    }

    /// The tree that has the extent items, and its rules.
    pub(crate) fn extent_tree(&self) -> &Arc<LiveTree> {
        &self.trees.extent
    }

    pub(crate) fn extent_items(&self) -> ExtentItems {
        self.accounting.extent_items(self.generation())
    }

    pub(crate) fn checksum_items(&self) -> ChecksumItems {
        ChecksumItems {
            nodesize: self.volume.nodesize(),
            sectorsize: self.volume.sectorsize(),
            checksum_type: self.volume.checksum_type(),
        }
    }
}

impl std::fmt::Debug for TransactionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionManager")
            .field("generation", &self.generation())
            .field("durable_generation", &self.durable_generation.load(Acquire))
            .field("space", self.space())
            .field("aborted", &self.aborted.get())
            .finish_non_exhaustive()
    }
}

fn open_listed(forest: &Forest, roots: &Roots, id: u64) -> Option<Arc<LiveTree>> {
    let (_, item) = roots.get(id)?;
    Some(forest.open_tree(TreeRoot::of_item(id, item), item.last_snapshot.get()))
}

/// The trees of bookkeeping. Those that must be there were found before.
fn open_system_trees(forest: &Forest, roots: &Roots) -> SystemTrees {
    let open = |id| open_listed(forest, roots, id);
    let required = |id| open(id).expect("its root item was read");
    SystemTrees {
        extent: required(EXTENT_TREE),
        dev: required(DEV_TREE),
        csum: required(CSUM_TREE),
        free_space: open(FREE_SPACE_TREE),
        block_group: open(BLOCK_GROUP_TREE).unwrap_or_else(|| required(EXTENT_TREE)),
    }
}
