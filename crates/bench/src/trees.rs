//! A subvolume's tree in memory, without devices or a file system: only the tree and its locks are
//! measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_btree::{
    BlockCache, BlockIdentity, BlockRequest, BlockSpace, ChangeStats, Copied, Forest, LiveTree,
    LockPolicy, MemoryStore, SpaceError,
};
use larder_format::objectid::{FIRST_FREE, FS_TREE};
use larder_format::{ItemType, Key, Logical, Uuid, name_hash};

const NODESIZE: usize = 16 * 1024;

/// Allocates addresses and never frees one.
#[derive(Default)]
struct Addresses(AtomicU64);

impl BlockSpace for Addresses {
    fn allocate(&self, _: &BlockRequest) -> Result<Logical, SpaceError> {
        Ok(Logical((1 + self.0.fetch_add(1, Ordering::Relaxed)) * NODESIZE as u64))
    }

    fn copied(&self, _: &Copied<'_>) -> Result<(), SpaceError> {
        Ok(())
    }

    fn freed(&self, _: u64, _: &larder_btree::Block) {}
}

/// The result of threads working on one tree.
pub struct TreeRun {
    pub files: u64,
    pub elapsed: Duration,
    /// The longest time for one file.
    pub worst: Duration,
    pub stats: ChangeStats,
}

impl TreeRun {
    /// Creates `files` files from `threads` threads, each in a directory of its own, looking each
    /// up once it is there, in a new tree whose locks are taken by `policy`.
    pub fn measure(policy: LockPolicy, files: u64, threads: u64) -> anyhow::Result<Self> {
        let cache = Arc::new(BlockCache::new(Arc::new(MemoryStore::new(NODESIZE)), 0));
        let identity = BlockIdentity { fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil() };
        let forest =
            Forest::with_policy(cache, Arc::new(Addresses::default()), identity, 1, policy);
        let tree = forest.create_tree(FS_TREE)?;
        let next_inode = AtomicU64::new(FIRST_FREE + threads);
        let each = files / threads;
        let since = Instant::now();
        let worst = thread::scope(|scope| {
            let start = |thread| {
                let (tree, next_inode) = (&tree, &next_inode);
                scope.spawn(move || create(tree, next_inode, FIRST_FREE + thread, each))
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            workers.into_iter().try_fold(Duration::ZERO, |worst, worker| {
                let own = worker.join().expect("a worker does not panic")?;
                anyhow::Ok(worst.max(own))
            })
        })?;
        let stats = forest.stats();
        Ok(Self { files: each * threads, elapsed: since.elapsed(), worst, stats })
    }

    /// Files created in a second.
    pub fn rate(&self) -> f64 {
        self.files as f64 / self.elapsed.as_secs_f64()
    }
}

/// Creates files in one directory: inode and reference next to each other, then the two entries;
/// then finds each by its name. Returns the longest time for one.
fn create(
    tree: &LiveTree,
    next_inode: &AtomicU64,
    directory: u64,
    files: u64,
) -> anyhow::Result<Duration> {
    let mut worst = Duration::ZERO;
    for index in 2..2 + files {
        let since = Instant::now();
        let inode = next_inode.fetch_add(1, Ordering::Relaxed);
        let name = format!("{directory:08x}~~~{index:010}");
        let entry = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(name.as_bytes()));
        tree.insert_batch(&[
            (Key::new(inode, ItemType::INODE_ITEM, 0), &[0; 160]),
            (Key::new(inode, ItemType::INODE_REF, directory), &[0; 32]),
        ])?;
        // Names of one hash share an item; here the later one replaces the earlier.
        tree.put(entry, &[0; 52])?;
        tree.insert(Key::new(directory, ItemType::DIR_INDEX, index), &[0; 52])?;
        anyhow::ensure!(tree.get_with(entry, <[u8]>::len)?.is_some(), "{name} is not there");
        worst = worst.max(since.elapsed());
    }
    Ok(worst)
}
