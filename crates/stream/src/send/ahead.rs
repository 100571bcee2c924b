//! Tree blocks that a walk will want soon, read and verified by other threads meanwhile.
//!
//! # Invariants
//! - A block that is fetched ahead only enters the cache: the walk asks for it all the same, checks it against
//!   what stands above it, and meets every error itself.
//! - At most [`WAITING`] blocks wait to be fetched. What does not find room is left to the walk.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use larder_btree::{Block, Tree};
use larder_format::Key;
use parking_lot::Mutex;

/// Blocks that may wait.
const WAITING: usize = 128;

/// Fetches blocks ahead as long as it is there.
pub(super) struct Ahead {
    to_do: SyncSender<Wanted>,
}

/// A block, and whatever is above it and not in memory.
enum Wanted {
    /// A child of a node.
    Child { tree: Tree, parent: Block, slot: usize },
    /// The leaf where a key belongs.
    Leaf { tree: Tree, key: Key },
}

impl Ahead {
    /// Fetches the child at `slot` of `parent`, which is a node of `tree`.
    pub(super) fn child(&self, tree: &Tree, parent: &Block, slot: usize) {
        let (tree, parent) = (tree.clone(), parent.clone());
        let _ = self.to_do.try_send(Wanted::Child { tree, parent, slot });
    }

    /// Fetches the leaf of `tree` where `key` belongs.
    pub(super) fn leaf(&self, tree: &Tree, key: Key) {
        let _ = self.to_do.try_send(Wanted::Leaf { tree: tree.clone(), key });
    }
}

/// Runs `walk` while so many threads fetch what it asks for.
pub(super) fn fetching_ahead<T>(threads: NonZeroUsize, walk: impl FnOnce(&Ahead) -> T) -> T {
    let (to_do, wanted) = sync_channel(WAITING);
    let wanted = Mutex::new(wanted);
    thread::scope(|scope| {
        // The threads end once nobody can ask for more, whatever ends the walk.
        let ahead = Ahead { to_do };
        for _ in 0..threads.get() {
            scope.spawn(|| fetch(&wanted));
        }
        let walked = walk(&ahead);
        drop(ahead);
        walked
    })
}

fn fetch(wanted: &Mutex<Receiver<Wanted>>) {
    loop {
        // Only taking one is under the lock.
        let next = wanted.lock().recv();
        match next {
            Ok(Wanted::Child { tree, parent, slot }) => drop(tree.child(&parent, slot, None)),
            Ok(Wanted::Leaf { tree, key }) => drop(tree.get(key)),
            Err(_) => return,
        }
    }
}
