//! What creating files does to a subvolume's tree, without the file system around it: the lock
//! ablations. Prints a line for each policy and number of threads.
//!
//! `cargo run --release -p larder-btree --example create_files -- [FILES] [THREADS…]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder_btree::{
    BlockCache, BlockIdentity, BlockRequest, BlockSpace, Copied, Forest, LiveTree, LockPolicy,
    MemoryStore, SpaceError, Waiting,
};
use larder_format::name_hash;
use larder_format::objectid::{FIRST_FREE, FS_TREE};
use larder_format::{ItemType, Key, Logical, Uuid};

const NODESIZE: usize = 16 * 1024;

#[derive(Default)]
struct Counter(AtomicU64);

impl BlockSpace for Counter {
    fn allocate(&self, _: &BlockRequest) -> Result<Logical, SpaceError> {
        Ok(Logical((1 + self.0.fetch_add(1, Ordering::Relaxed)) * NODESIZE as u64))
    }

    fn copied(&self, _: &Copied<'_>) -> Result<(), SpaceError> {
        Ok(())
    }

    fn freed(&self, _: u64, _: &larder_btree::Block) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|n| n.parse::<u64>().expect("a number"));
    let files = arguments.next().unwrap_or(400_000);
    let mut threads: Vec<u64> = arguments.collect();
    if threads.is_empty() {
        threads = vec![1, 2, 4, 16];
    }
    println!(
        "{:28} {:>7} {:>10} {:>9} {:>9} {:>12} {:>12} {:>9}",
        "policy",
        "threads",
        "creates/s",
        "blocked",
        "wait ms",
        "locks above",
        "held ms",
        "restarts"
    );
    for threads in threads {
        for (name, early_release, first_write_level, fingers, waiting) in [
            ("fingers", true, 0, true, Waiting::Adaptive),
            ("from the leaf", true, 0, false, Waiting::Adaptive),
            ("from level 1, early release", true, 1, false, Waiting::Adaptive),
            ("from level 1", false, 1, false, Waiting::Adaptive),
            ("from the leaf, spinning", true, 0, false, Waiting::Spinning),
            ("from the leaf, sleeping", true, 0, false, Waiting::Sleeping),
        ] {
            let policy = LockPolicy { early_release, first_write_level, fingers, waiting };
            measure(name, policy, files, threads);
        }
    }
}

fn measure(name: &str, policy: LockPolicy, files: u64, threads: u64) {
    let cache = Arc::new(BlockCache::new(Arc::new(MemoryStore::new(NODESIZE)), 0));
    let identity = BlockIdentity { fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil() };
    let forest = Forest::new(cache, Arc::new(Counter::default()), identity, policy, 1);
    let tree = forest.create_tree(FS_TREE).expect("space is there");
    let next_inode = AtomicU64::new(FIRST_FREE + threads);
    let (since, cpu_since) = (Instant::now(), cpu_nanos());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (tree, next_inode) = (&tree, &next_inode);
            scope.spawn(move || create(tree, next_inode, FIRST_FREE + thread, files / threads));
        }
    });
    let (elapsed, cpu) = (since.elapsed(), cpu_nanos() - cpu_since);
    let stats = forest.stats();
    println!(
        "{name:28} {threads:7} {:10.0} {:11} {:9} {:9.1} {:12} {:9.1} {:9} {:9}",
        files as f64 / elapsed.as_secs_f64(),
        cpu / files,
        stats.locks.blocked,
        stats.locks.wait_nanos as f64 / 1e6,
        stats.locks.internal_write_locks,
        stats.locks.internal_write_held_nanos as f64 / 1e6,
        stats.restarts,
        stats.finger_hits,
    );
}

/// Processor time of this process: what other processes do hardly shows in it.
fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Creates files in one directory: inode and reference next to each other, then the two entries.
fn create(tree: &LiveTree, next_inode: &AtomicU64, directory: u64, files: u64) {
    for index in 2..2 + files {
        let inode = next_inode.fetch_add(1, Ordering::Relaxed);
        let name = format!("{directory:08x}~~~{index:010}");
        let hash = name_hash::dir_name(name.as_bytes());
        tree.insert_batch(&[
            (Key::new(inode, ItemType::INODE_ITEM, 0), &[0; 160]),
            (Key::new(inode, ItemType::INODE_REF, directory), &[0; 32]),
        ])
        .expect("a new inode");
        // Names of one hash share an item; here the later one takes its place.
        tree.put(Key::new(directory, ItemType::DIR_ITEM, hash), &[0; 52]).expect("an entry");
        tree.insert(Key::new(directory, ItemType::DIR_INDEX, index), &[0; 52]).expect("an entry");
    }
}
