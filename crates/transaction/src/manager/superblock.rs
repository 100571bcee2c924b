//! The superblock that the next commit writes.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use larder_btree::TreeRoot;
use larder_format::Superblock;
use larder_format::item::Chunk;
use larder_format::key::DiskKey;
use larder_format::objectid::{CSUM_TREE, DEV_TREE, EXTENT_TREE, FS_TREE};
use larder_format::superblock::{BACKUP_ROOTS, BackupRoot, SYS_CHUNK_ARRAY_SIZE};
use larder_locks::RankedMutex;
use larder_locks::rank::SUPERBLOCK;
use zerocopy::{FromZeros, IntoBytes};

use super::roots::Roots;

/// The superblock of the last commit, with the changes that the next commit writes.
#[derive(Debug)]
pub(super) struct NextSuperblock {
    superblock: RankedMutex<Box<Superblock>, SUPERBLOCK>,
    /// There are changes.
    is_dirty: AtomicBool,
}

impl NextSuperblock {
    pub(super) fn new(superblock: Box<Superblock>) -> Self {
        Self { superblock: RankedMutex::new(superblock), is_dirty: AtomicBool::new(false) }
    }

    pub(super) fn get(&self) -> Superblock {
        (**self.superblock.lock()).clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Superblock) -> T) -> T {
        let changed = change(&mut self.superblock.lock());
        self.is_dirty.store(true, Release);
        changed
    }

    /// Whether there are changes besides those that every commit makes.
    pub(super) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Acquire)
    }

    /// Notes that the commit in progress has all changes so far.
    pub(super) fn clear_dirty(&self) {
        self.is_dirty.store(false, Relaxed);
    }

    /// The superblock of the commit that `committed` describes.
    pub(super) fn complete(&self, committed: &Committed<'_>) -> Box<Superblock> {
        let mut superblock = self.superblock.lock();
        committed.write_to(&mut superblock);
        superblock.clone()
    }
}

/// The fields of the superblock that the commit of a generation sets.
pub(super) struct Committed<'a> {
    pub(super) generation: u64,
    pub(super) root_tree: TreeRoot,
    pub(super) chunk_tree: TreeRoot,
    pub(super) bytes_used: u64,
    pub(super) system_chunks: &'a [u8],
    pub(super) roots: &'a Roots,
}

impl Committed<'_> {
    /// Updates the superblock of the commit before for this one.
    fn write_to(&self, superblock: &mut Superblock) {
        let before = superblock.generation.get();
        // A uuid tree that was complete still is: each commit keeps it so.
        if superblock.uuid_tree_generation.get() == before {
            superblock.uuid_tree_generation = self.generation.into();
        }
        superblock.generation = self.generation.into();
        superblock.root = self.root_tree.logical.0.into();
        superblock.root_level = self.root_tree.level;
        superblock.chunk_root = self.chunk_tree.logical.0.into();
        superblock.chunk_root_level = self.chunk_tree.level;
        superblock.chunk_root_generation = self.chunk_tree.generation.into();
        superblock.bytes_used = self.bytes_used.into();
        let system_chunks = keep_entries(&superblock.sys_chunk_array, self.system_chunks);
        superblock.sys_chunk_array_size = (system_chunks.len() as u32).into();
        superblock.sys_chunk_array = [0; SYS_CHUNK_ARRAY_SIZE];
        superblock.sys_chunk_array[..system_chunks.len()].copy_from_slice(&system_chunks);
        let slot = next_backup(&superblock.super_roots, before);
        superblock.super_roots[slot] = self.backup(superblock);
    }

    fn backup(&self, superblock: &Superblock) -> BackupRoot {
        let mut backup = BackupRoot::new_zeroed();
        let of_tree = |tree| {
            self.roots.get(tree).map_or((0, 0, 0), |(_, item)| {
                (item.bytenr.get(), item.generation.get(), item.level)
            })
        };
        let of_root = |root: TreeRoot| (root.logical.0, root.generation, root.level);
        macro_rules! set {
            ($address:ident, $generation:ident, $level:ident, $from:expr) => {
                let (address, generation, level) = $from;
                backup.$address = address.into();
                backup.$generation = generation.into();
                backup.$level = level;
            };
        }
        set!(tree_root, tree_root_gen, tree_root_level, of_root(self.root_tree));
        set!(chunk_root, chunk_root_gen, chunk_root_level, of_root(self.chunk_tree));
        set!(extent_root, extent_root_gen, extent_root_level, of_tree(EXTENT_TREE));
        set!(fs_root, fs_root_gen, fs_root_level, of_tree(FS_TREE));
        set!(dev_root, dev_root_gen, dev_root_level, of_tree(DEV_TREE));
        set!(csum_root, csum_root_gen, csum_root_level, of_tree(CSUM_TREE));
        backup.total_bytes = superblock.total_bytes;
        backup.bytes_used = superblock.bytes_used;
        backup.num_devices = superblock.num_devices;
        backup
    }
}

/// The system chunks in `new`. Those that are in `old` too, with the same length and stripes, stay
/// unchanged:
/// their maker may have given them other alignment hints, which the chunk tree still has.
fn keep_entries(old: &[u8], new: &[u8]) -> Vec<u8> {
    let key_of = |entry: &[u8]| entry[..size_of::<DiskKey>()].to_vec();
    let layout_of = |entry: &[u8]| {
        let chunk = Chunk::parse(&entry[size_of::<DiskKey>()..]).ok()?;
        let header = &chunk.header;
        Some((header.length.get(), header.flags.get(), chunk.stripes.as_bytes().to_vec()))
    };
    let kept = |entry: &[u8]| {
        let same = |old: &&[u8]| {
            key_of(old) == key_of(entry)
                && layout_of(old).is_some_and(|old| Some(old) == layout_of(entry))
        };
        entries(old).find(same).map(<[u8]>::to_vec)
    };
    entries(new).flat_map(|entry| kept(entry).unwrap_or_else(|| entry.to_vec())).collect()
}

/// The entries of an array of system chunks, each with its key.
fn entries(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = array;
    std::iter::from_fn(move || {
        let chunk = rest.get(size_of::<DiskKey>()..)?;
        let len_bytes = size_of::<DiskKey>() + Chunk::len_bytes_of(chunk).ok()?;
        let (entry, behind) = rest.split_at_checked(len_bytes)?;
        rest = behind;
        Some(entry)
    })
}

/// The slot after that of the last commit.
fn next_backup(backups: &[BackupRoot; BACKUP_ROOTS], last_generation: u64) -> usize {
    let is_last = |backup: &BackupRoot| backup.tree_root_gen.get() == last_generation;
    backups.iter().position(is_last).map_or(0, |last| (last + 1) % BACKUP_ROOTS)
}
