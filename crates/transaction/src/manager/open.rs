//! From a volume to a manager.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_btree::{BlockCache, BlockIdentity, Forest, Tree, TreeRoot};
use larder_format::feature::IncompatFlags;
use larder_format::{Superblock, Uuid};
use larder_volume::Volume;
use parking_lot::{Mutex, RwLock};

use super::abort::Abort;
use super::bookkeeping::Bookkeeping;
use super::cleaning::Cleanings;
use super::device_stats::DeviceStats;
use super::durable::DurableState;
use super::join_gate::JoinGate;
use super::roots::Roots;
use super::superblock::NextSuperblock;
use super::system_trees::SystemTrees;
use super::tickets::TicketQueues;
use super::tree_space::TreeSpace;
use super::{TransactionManager, cross_check, load};
use crate::error::{Error, Result};
use crate::quota::Quotas;
use crate::space::Space;
use crate::tree_items::TreeItems;

impl TransactionManager {
    /// Opens the file system on `volume` for writing; `cache` is over the same volume. Devices that missed
    /// commits get what they missed; nothing else is written before the first commit. If devices are missing,
    /// the first commit follows at once.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] says why a sound file system can only be read, [`Error::Unsound`] which structure
    /// is damaged that commits need.
    pub fn open(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        if volume.superblock().log_root.get() != 0 {
            return Err(Error::ReadOnly("a crash left a log tree, which is to be replayed first"));
        }
        let manager = Self::load(volume, cache)?;
        manager.bring_devices_up_to_date()?;
        Ok(manager)
    }

    /// Opens a file system that may have log trees.
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
        let identity = identity_of(&superblock, &cache)?;
        let skinny = superblock.has_incompat(IncompatFlags::SKINNY_METADATA);
        let space = Arc::new(Space::new(volume.clone()));
        let tree_space = Arc::new(TreeSpace::new(space.clone(), volume.nodesize(), skinny));
        let generation = superblock.generation.get() + 1;
        let forest = Forest::new(cache, tree_space.clone(), identity, generation);
        let trees =
            Arc::new(SystemTrees::open(&forest, &roots, &superblock, identity.chunk_tree_uuid));
        cross_check::check(forest.cache(), &trees, &volume.chunks())?;
        tree_space.set_extent_tree(&trees.extent);
        forest.trees().iter().for_each(|tree| space.note_level(tree.root().level));
        space.load(&load::load_groups(&volume, &forest, &trees)?)?;
        if let Some(tree) = trees.quota.clone().map(TreeItems::new)
            && let Some(quotas) = Quotas::load(&tree, volume.nodesize())?
        {
            tree_space.set_quotas(quotas);
        }
        let durable = Arc::new(DurableState::new(superblock.clone()));
        Ok(Self {
            bookkeeping: Bookkeeping::new(volume.clone(), trees.clone(), tree_space.clone()),
            device_stats: DeviceStats::load(volume.clone(), trees.dev.clone())?,
            volume,
            forest,
            trees,
            tree_space,
            roots: Mutex::new(roots),
            superblock: NextSuperblock::new(superblock),
            abort: Abort::new(durable.clone()),
            durable,
            logs: Mutex::default(),
            gate: JoinGate::default(),
            cleanings: Cleanings::default(),
            tickets: TicketQueues::default(),
            committing: Mutex::default(),
            discards: AtomicBool::new(false),
            hooks: RwLock::default(),
        })
    }
}

/// The ids that each tree block of a file system has.
fn identity_of(superblock: &Superblock, cache: &Arc<BlockCache>) -> Result<BlockIdentity> {
    let chunk_tree = Tree::new(cache.clone(), TreeRoot::of_chunk_tree(superblock));
    let chunk_tree_uuid = chunk_tree.root_block()?.header().chunk_tree_uuid;
    Ok(BlockIdentity {
        fsid: superblock.metadata_uuid(),
        chunk_tree_uuid: Uuid::from_bytes(chunk_tree_uuid),
    })
}
