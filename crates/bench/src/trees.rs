//! A subvolume's tree in memory, without devices or a file system: only the tree and its locks are
//! measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_btree::{
    BlockCache, BlockIdentity, BlockRequest, BlockSpace, ChangeStats, Copied, Forest, LiveTree,
    LockEvent, LockPolicy, MemoryStore, SpaceError, record_locks,
};
use larder_format::objectid::{FIRST_FREE, FS_TREE};
use larder_format::{ItemType, Key, Logical, Uuid, name_hash};
use parking_lot::{Condvar, Mutex};

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
        let (forest, tree) = new_tree(policy)?;
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

fn new_tree(policy: LockPolicy) -> anyhow::Result<(Forest, Arc<LiveTree>)> {
    let cache = Arc::new(BlockCache::new(Arc::new(MemoryStore::new(NODESIZE)), 0));
    let identity = BlockIdentity { fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil() };
    let forest = Forest::with_policy(cache, Arc::new(Addresses::default()), identity, 1, policy);
    let tree = forest.create_tree(FS_TREE)?;
    Ok((forest, tree))
}

/// Creates files in one directory. Returns the longest time for one.
fn create(
    tree: &LiveTree,
    next_inode: &AtomicU64,
    directory: u64,
    files: u64,
) -> anyhow::Result<Duration> {
    let mut worst = Duration::ZERO;
    for index in 2..2 + files {
        let since = Instant::now();
        create_file(tree, next_inode, directory, index)?;
        worst = worst.max(since.elapsed());
    }
    Ok(worst)
}

/// Creates a file: inode and reference next to each other, then the two entries; then finds it by
/// its name.
fn create_file(
    tree: &LiveTree,
    next_inode: &AtomicU64,
    directory: u64,
    index: u64,
) -> anyhow::Result<()> {
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
    Ok(())
}

/// What a thread did with locks while it created one file, in nanoseconds since it began.
pub struct RecordedFile {
    pub events: Vec<(u64, LockEvent)>,
    pub nanos: u64,
}

/// So many files a thread creates in a row: with more its caches are warm, as they are on a
/// processor of its own.
const FILES_IN_A_TURN: u64 = 16;
/// A file that took so many times as long as most was interrupted by other work of the machine.
const MOST_TIMES: u64 = 4;

/// Threads create `before` files of each in a new tree, and then `files` of each, in turns: one
/// thread at a time works. Returns what each thread did with locks in its turns.
pub fn record(
    policy: LockPolicy,
    threads: u64,
    before: u64,
    files: u64,
) -> anyhow::Result<Vec<Vec<RecordedFile>>> {
    let (_forest, tree) = new_tree(policy)?;
    let next_inode = AtomicU64::new(FIRST_FREE + threads);
    let turns: Vec<Condvar> = (0..threads).map(|_| Condvar::new()).collect();
    let turn = Mutex::new(0);
    let recorded: Vec<anyhow::Result<Vec<RecordedFile>>> = thread::scope(|scope| {
        let start = |thread: u64| {
            let (tree, next_inode, turn, turns) = (&tree, &next_inode, &turn, &turns);
            scope.spawn(move || {
                let (mut recorded, mut created) = (Vec::new(), Ok(()));
                for first in (0..before + files).step_by(FILES_IN_A_TURN as usize) {
                    let mut now = turn.lock();
                    turns[thread as usize].wait_while(&mut now, |now| *now != thread);
                    let indexes = first..(first + FILES_IN_A_TURN).min(before + files);
                    let mut each = indexes.map(|index| {
                        let file = record_file(tree, next_inode, FIRST_FREE + thread, 2 + index)?;
                        recorded.extend((index >= before).then_some(file));
                        anyhow::Ok(())
                    });
                    // A thread that failed goes on taking turns, for which the others wait.
                    created = created.and_then(|()| each.try_for_each(|created| created));
                    *now = (thread + 1) % threads;
                    turns[*now as usize].notify_one();
                }
                created?;
                Ok(recorded)
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut recorded = recorded.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut nanos: Vec<u64> = recorded.iter().flatten().map(|file| file.nanos).collect();
    nanos.sort_unstable();
    let most = MOST_TIMES * nanos.get(nanos.len() / 2).copied().unwrap_or_default();
    for files in &mut recorded {
        files.retain(|file| file.nanos <= most);
    }
    Ok(recorded)
}

fn record_file(
    tree: &LiveTree,
    next_inode: &AtomicU64,
    directory: u64,
    index: u64,
) -> anyhow::Result<RecordedFile> {
    let since = Instant::now();
    let (created, events) = record_locks(|| create_file(tree, next_inode, directory, index));
    let nanos = since.elapsed().as_nanos() as u64;
    created?;
    let at =
        |event: LockEvent| (event.at.saturating_duration_since(since).as_nanos() as u64, event);
    Ok(RecordedFile { events: events.into_iter().map(at).collect(), nanos })
}
