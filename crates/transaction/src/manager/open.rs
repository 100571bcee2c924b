//! From a volume to a manager.

use std::sync::{Arc, OnceLock};

use larder_btree::{BlockCache, BlockIdentity, Forest, Tree, TreeRoot};
use larder_format::feature::IncompatFlags;
use larder_format::{Superblock, Uuid};
use larder_locks::RankedMutex;
use larder_volume::Volume;
use parking_lot::Mutex;

use super::abort::Abort;
use super::bookkeeping::Bookkeeping;
use super::durable::DurableState;
use super::join_gate::JoinGate;
use super::left_relocation::drop_relocation_trees;
use super::resync::{ResyncProgress, bring_devices_up_to_date, renew_first_superblocks};
use super::roots::Roots;
use super::space_waiters::SpaceWaiters;
use super::superblock::NextSuperblock;
use super::system_trees::SystemTrees;
use super::tree_space::TreeSpace;
use super::trees::Trees;
use super::{TransactionManager, cross_check, load};
use crate::error::{Error, Result};
use crate::log::Recovery;
use crate::quota::Quotas;
use crate::space::Space;
use crate::tree_items::TreeItems;

impl TransactionManager {
    /// Opens the file system on `volume` for writing; `cache` is over the same volume. Devices that
    /// missed commits are brought up to date, and what a crash left of the kernel's moving of block
    /// groups is dropped; nothing else is written before the first commit. If devices are missing,
    /// the first commit follows at once.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] says why a sound file system can only be read, [`Error::Unsound`] which
    /// structure that commits need is damaged.
    pub fn open(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        if volume.superblock().log_root.get() != 0 {
            return Err(Error::ReadOnly("a crash left a log tree, which is to be replayed first"));
        }
        let manager = Self::load(volume, cache)?;
        drop_relocation_trees(&manager).map_err(Error::while_opening)?;
        bring_devices_up_to_date(&manager, &|_| ())?;
        Ok(manager)
    }

    /// Like [`open`](Self::open), but `replay` first replays the log trees that a crash left; after
    /// that they are void. A commit makes that durable; nothing is written before it. If devices
    /// missed commits, `tell` is called in this thread with the progress of copying.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of `replay`; then everything is as the crash left it.
    pub fn open_replaying(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        replay: impl FnOnce(&Recovery<'_>) -> Result<()>,
        tell: &dyn Fn(ResyncProgress),
    ) -> Result<Self> {
        let manager = Self::load(volume, cache)?;
        let superblock = manager.superblock();
        if superblock.log_root.get() != 0 {
            let recovered = Recovery::begin(&manager, &superblock).and_then(|recovery| {
                replay(&recovery)?;
                recovery.end()
            });
            recovered.map_err(Error::while_opening)?;
            manager.change_superblock(|superblock| {
                superblock.log_root = 0.into();
                superblock.log_root_transid = 0.into();
                superblock.log_root_level = 0;
            });
            let generation = manager.commit()?;
            tracing::info!("the log is replayed, and committed as generation {generation}");
        }
        drop_relocation_trees(&manager).map_err(Error::while_opening)?;
        bring_devices_up_to_date(&manager, tell)?;
        Ok(manager)
    }

    /// Opens a file system that may have log trees.
    fn load(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        load::check_writable(&volume)?;
        let manager = Self::load_trees(volume, cache).map_err(Error::while_opening)?;
        manager.take_replace_up().map_err(Error::while_opening)?;
        warn_of_incomplete(&manager);
        renew_first_superblocks(&manager)?;
        Ok(manager)
    }

    fn load_trees(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
        let superblock = volume.superblock();
        let space = Arc::new(Space::new(volume.clone()));
        let mut roots = Roots::default();
        for (key, item) in load::read_roots(&cache, &superblock)? {
            space.note_bookkeeping(
                key.objectid,
                item.bytes_used.get().min(superblock.bytes_used.get()),
            );
            roots.open(key, &item);
        }
        let identity = identity_of(&superblock, &cache)?;
        let skinny = superblock.has_incompat(IncompatFlags::SKINNY_METADATA);
        let tree_space = Arc::new(TreeSpace::new(space.clone(), volume.nodesize(), skinny));
        let generation = superblock.generation.get() + 1;
        let forest = Forest::new(cache, tree_space.clone(), identity, generation);
        let system =
            Arc::new(SystemTrees::open(&forest, &roots, &superblock, identity.chunk_tree_uuid));
        cross_check::check(forest.cache(), &system, &volume.chunks())?;
        tree_space.set_extent_tree(&system.extent);
        forest.trees().iter().for_each(|tree| space.note_level(tree.root().level));
        space.load(&load::load_groups(&volume, &forest, &system)?)?;
        if let Some(tree) = system.quota.clone().map(TreeItems::new)
            && let Some(quotas) = Quotas::load(&tree, volume.nodesize())?
        {
            tree_space.set_quotas(quotas);
        }
        let durable = Arc::new(DurableState::new(&superblock));
        Ok(Self {
            bookkeeping: Bookkeeping::new(volume.clone(), system.clone(), tree_space.clone())?,
            volume,
            trees: Trees::new(forest, system, roots, tree_space.clone()),
            tree_space,
            superblock: NextSuperblock::new(Box::new((*superblock).clone())),
            abort: Abort::new(durable.clone()),
            durable,
            gate: JoinGate::default(),
            space_waiters: SpaceWaiters::default(),
            committing: RankedMutex::default(),
            device_work: Mutex::default(),
            finishing: Mutex::default(),
            hook: OnceLock::new(),
        })
    }
}

/// Tells of block groups that have fewer copies than they should.
fn warn_of_incomplete(manager: &TransactionManager) {
    let space = manager.space();
    let groups = space.groups().into_iter().filter(|group| group.used() > 0);
    let incomplete = groups.filter(|group| space.complete_profile(group).is_some());
    let bytes: u64 = incomplete.map(|group| group.used()).sum();
    if bytes > 0 {
        tracing::warn!(
            "{bytes} bytes have fewer copies than they should: 'larder filesystem redundancy' \
             shows and completes them"
        );
    }
}

/// The ids that the tree blocks of a file system have.
fn identity_of(superblock: &Superblock, cache: &Arc<BlockCache>) -> Result<BlockIdentity> {
    let chunk_tree = Tree::new(cache.clone(), TreeRoot::of_chunk_tree(superblock));
    let chunk_tree_uuid = chunk_tree.root_block()?.header().chunk_tree_uuid;
    Ok(BlockIdentity {
        fsid: superblock.metadata_uuid(),
        chunk_tree_uuid: Uuid::from_bytes(chunk_tree_uuid),
    })
}
