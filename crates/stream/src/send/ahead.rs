//! Tree blocks that a walk needs soon, which other threads read and verify meanwhile.
//!
//! # Invariants
//! - A prefetched block only enters the cache: the walk still requests it, checks it against its
//!   parent, and meets every error itself.
//! - At most [`WAITING`] requests wait, each for a few blocks: waking a thread for every block
//!   would cost as much as reading it. The walk reads the blocks that found no room.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use larder_btree::{Block, Tree};
use larder_format::Key;
use parking_lot::Mutex;

/// The most requests that wait.
const WAITING: usize = 8;

/// Prefetches blocks as long as it exists.
pub(super) struct Ahead {
    to_do: SyncSender<Fetch>,
}

/// A few blocks, and the missing blocks above them.
enum Fetch {
    /// Children of a node.
    Children { tree: Tree, parent: Block, slots: Vec<usize> },
    /// The leaves for keys.
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

    /// Fetches the leaves of `tree` for `keys`.
    pub(super) fn leaves(&self, tree: &Tree, keys: Vec<Key>) {
        if !keys.is_empty() {
            let _ = self.to_do.try_send(Fetch::Leaves { tree: tree.clone(), keys });
        }
    }
}

/// Runs `walk` while this number of threads fetches the blocks that it requests.
pub(super) fn fetching_ahead<T>(threads: NonZeroUsize, walk: impl FnOnce(&Ahead) -> T) -> T {
    let (to_do, wanted) = sync_channel(WAITING);
    let wanted = Mutex::new(wanted);
    thread::scope(|scope| {
        // The threads end once no thread can request more, however the walk ends.
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
        // The lock covers only taking a request.
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
