//! Tree blocks that a walk will want soon, read and verified by other threads meanwhile.
//!
//! # Invariants
//! - A block that is fetched ahead only enters the cache: the walk asks for it all the same, checks it against
//!   what stands above it, and meets every error itself.
//! - At most [`WAITING`] requests wait, each for a few blocks: to wake a thread for every block would cost as much as
//!   to read it. What does not find room is left to the walk.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use larder_btree::{Block, Tree};
use larder_format::Key;
use parking_lot::Mutex;

/// Requests that may wait.
const WAITING: usize = 8;

/// Fetches blocks ahead as long as it is there.
pub(super) struct Ahead {
    to_do: SyncSender<Fetch>,
}

/// A few blocks, and whatever is above them and not in memory.
enum Fetch {
    /// Children of a node.
    Children { tree: Tree, parent: Block, slots: Vec<usize> },
    /// The leaves where keys belong.
    Leaves { tree: Tree, keys: Vec<Key> },
}

impl Ahead {
    /// Fetches the children at `slots` of `parent`, which is a node of `tree`.
    pub(super) fn children(&self, tree: &Tree, parent: &Block, slots: Vec<usize>) {
        let (tree, parent) = (tree.clone(), parent.clone());
        if !slots.is_empty() {
            let _ = self.to_do.try_send(Fetch::Children { tree, parent, slots });
        }
    }

    /// Fetches the leaves of `tree` where `keys` belong.
    pub(super) fn leaves(&self, tree: &Tree, keys: Vec<Key>) {
        if !keys.is_empty() {
            let _ = self.to_do.try_send(Fetch::Leaves { tree: tree.clone(), keys });
        }
    }
}

/// Runs `walk` while so many threads fetch what it asks for.
pub(super) fn fetching_ahead<T>(threads: NonZeroUsize, walk: impl FnOnce(&Ahead) -> T) -> T {
    let (to_do, wanted) = sync_channel(WAITING);
    let wanted = Mutex::new(wanted);
    thread::scope(|scope| {
        // The threads end once no thread can ask for more, whatever ends the walk.
        let ahead = Ahead { to_do };
        for _ in 0..threads.get() {
            scope.spawn(|| fetch(&wanted));
        }
        let walked = walk(&ahead);
        drop(ahead);
        walked
    })
}

fn fetch(wanted: &Mutex<Receiver<Fetch>>) {
    loop {
        // Only taking one is under the lock.
        let next = wanted.lock().recv();
        match next {
            Ok(Fetch::Children { tree, parent, slots }) => {
                for slot in slots {
                    drop(tree.child(&parent, slot, None));
                }
            }
            Ok(Fetch::Leaves { tree, keys }) => {
                for key in keys {
                    drop(tree.get(key));
                }
            }
            Err(_) => return,
        }
    }
}
