//! Fingers: shortcuts past the upper levels of a tree.
//!
//! Threads that change one tree all pass its root. Even a read lock there is a write to a cache
//! line that every core wants. So a search keeps, for its thread, the node above the leaf that it
//! found: a handle on the node's content, which later writers copy before they change it, and the
//! version of the node's lock. A later search for a key that the node covers goes straight to the
//! leaf, locks it, and looks at the version again. If the version is the same, the node still
//! leads there, and the search touches nothing above the leaf.
//!
//! # Invariants
//! - The keys that a leaf covers change only under the write lock of the node above it. A node's
//!   own range shrinks only when its content changes. So the version of one lock vouches for both.
//! - A version is odd while a writer holds the lock, and differs after that: a finger made before
//!   is never current again.
//! - A writer replaces a node that it may not change in place, without the node's lock. So a
//!   search uses fingers only of nodes that writers may change in place.
//! - A change that needs more than the leaf searches from the root.
//! - A thread only tries the lock of a lane and never waits for it: that lock is outside the lock
//!   order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use larder_format::Key;
use parking_lot::{Mutex, MutexGuard};

use crate::block::Block;
use crate::lock::{ReadGuard, Version};

/// Lanes of a tree. Threads beyond this share them.
const LANES: usize = 16;
/// Places in a tree where one thread works by turns: a thread that creates a file adds an inode at
/// the end, and two entries to the file's directory.
const FINGERS: usize = 4;

/// The fingers of all threads on one tree. They take no memory until a thread keeps one.
#[derive(Default)]
pub(crate) struct Fingers {
    lanes: OnceLock<Box<[Mutex<Lane>; LANES]>>,
}

/// The fingers of one thread, on cache lines of their own: no other thread writes there.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Lane {
    fingers: [Option<Finger>; FINGERS],
    /// Which finger the next new one replaces.
    oldest: usize,
    hits: u64,
}

/// A node above leaves, as a search found it.
pub(crate) struct Finger {
    pub(crate) node: Block,
    /// The first key after the node.
    pub(crate) upper: Option<Key>,
    version: Arc<Version>,
    seen: u64,
}

impl Finger {
    /// Remembers a node that is read-locked, which keeps its version.
    pub(crate) fn new(
        node: &ReadGuard<'_, Block>,
        upper: Option<Key>,
        version: Arc<Version>,
    ) -> Self {
        let seen = version.get();
        Self { node: Block::clone(node), upper, version, seen }
    }

    /// Whether the node is still the same.
    pub(crate) fn is_current(&self) -> bool {
        self.version.get() == self.seen
    }

    fn covers(&self, key: Key) -> bool {
        self.node.node().first_key().is_some_and(|first| first <= key)
            && self.upper.is_none_or(|upper| key < upper)
    }
}

impl Lane {
    /// A current finger whose node covers `key` and satisfies `fits`.
    pub(crate) fn find(&self, key: Key, fits: impl Fn(&Block) -> bool) -> Option<&Finger> {
        let is_good =
            |finger: &&Finger| finger.covers(key) && finger.is_current() && fits(&finger.node);
        self.fingers.iter().flatten().find(is_good)
    }

    /// Counts a search that needed nothing above its leaf.
    pub(crate) fn count_hit(&mut self) {
        self.hits += 1;
    }
}

impl Fingers {
    /// The lane of the calling thread, if no other thread uses it now.
    pub(crate) fn lane(&self) -> Option<MutexGuard<'_, Lane>> {
        self.lanes.get()?[thread_number() % LANES].try_lock()
    }

    /// Remembers a node for the calling thread.
    pub(crate) fn keep(&self, finger: Finger) {
        self.lanes.get_or_init(Box::default);
        if let Some(mut lane) = self.lane()
            && finger.is_current()
        {
            let stale =
                lane.fingers.iter().position(|f| f.as_ref().is_none_or(|f| !f.is_current()));
            let place = stale.unwrap_or(lane.oldest);
            lane.fingers[place] = Some(finger);
            lane.oldest = (place + 1) % FINGERS;
        }
    }

    /// Forgets all nodes.
    pub(crate) fn clear(&self) {
        for lane in self.lanes.get().into_iter().flat_map(|lanes| lanes.iter()) {
            lane.lock().fingers = Default::default();
        }
    }

    /// How often a search needed nothing above its leaf.
    pub(crate) fn hits(&self) -> u64 {
        let lanes = self.lanes.get().into_iter().flat_map(|lanes| lanes.iter());
        lanes.map(|lane| lane.lock().hits).sum()
    }
}

fn thread_number() -> usize {
    #[cfg(feature = "shuttle")]
    use shuttle::thread_local;
    #[cfg(not(feature = "shuttle"))]
    use std::thread_local;

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
