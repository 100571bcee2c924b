//! Fingers: shortcuts past the upper levels of a tree.
//!
//! Threads that change one tree all pass its root, and even a read lock there is a write to a cache
//! line that every core wants. So a search keeps, for its thread, the node above the leaf that it
//! found: a copy of the node's content (blocks are copied on write, so the copy is a handle) and the
//! version of the node's lock then. A later search whose key that node covers goes straight to the
//! leaf, locks it, and looks at the version again: if it is the same, the node still says so, and
//! nothing above the leaf was touched.
//!
//! # Invariants
//! - The keys that a leaf covers change only under the write lock of the node above it, and a node's
//!   own range shrinks only when its content changes: the version of one lock vouches for all.
//! - A version is odd while a writer holds the lock and differs after it: a finger made before is
//!   never current again.
//! - A node that may not be changed in place is replaced without being locked: its fingers are of no
//!   use.
//! - What needs more than the leaf is left to a search from the root.
//! - A lane is only tried, never waited for: it stands outside the lock order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use larder_format::Key;
use parking_lot::{Mutex, MutexGuard};

use super::forest::InMemory;
use super::intent::Intent;
use super::path::{Held, Path};
use super::reach::{end_slot, run_length, search_behind_first};
use super::search::Search;
use crate::block::Block;
use crate::expected::Expected;
use crate::lock::Version;

/// Lanes of a tree. Threads beyond this share them.
const LANES: usize = 16;
/// Places in a tree that one thread works at by turns: creating a file adds an inode at the end, and
/// two entries to its directory.
const FINGERS: usize = 4;

/// The fingers of all threads on one tree. Costs nothing until one is kept.
#[derive(Default)]
pub(super) struct Fingers {
    lanes: OnceLock<Box<[Mutex<Lane>; LANES]>>,
}

/// The fingers of one thread. On cache lines of its own: no other thread shall write there.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Lane {
    fingers: [Option<Finger>; FINGERS],
    /// Which finger the next new one replaces.
    oldest: usize,
    hits: u64,
}

/// A node above leaves, as it was.
pub(super) struct Finger {
    node: Block,
    /// The first key behind the node.
    upper: Option<Key>,
    version: Arc<Version>,
    seen: u64,
}

impl Finger {
    /// Called while the node is at least read-locked, which keeps its version.
    pub(super) fn new(node: Block, upper: Option<Key>, version: Arc<Version>) -> Self {
        let seen = version.get();
        Self { node, upper, version, seen }
    }

    fn is_current(&self) -> bool {
        self.version.get() == self.seen
    }

    fn covers(&self, key: Key) -> bool {
        self.node.node().first_key().is_some_and(|first| first <= key)
            && self.upper.is_none_or(|upper| key < upper)
    }
}

impl Fingers {
    fn lane(&self) -> Option<MutexGuard<'_, Lane>> {
        self.lanes.get()?[thread_number() % LANES].try_lock()
    }

    /// Remembers a node for the calling thread.
    pub(super) fn keep(&self, finger: Finger) {
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
    pub(super) fn clear(&self) {
        for lane in self.lanes.get().into_iter().flat_map(|lanes| lanes.iter()) {
            lane.lock().fingers = Default::default();
        }
    }

    /// How often a search needed nothing above its leaf.
    pub(super) fn hits(&self) -> u64 {
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

impl<'t> Search<'t> {
    /// The leaf, held as the intent wants it, if a finger of this thread leads to it and the change
    /// needs nothing else.
    pub(super) fn by_finger(&self) -> Option<Path<'t>> {
        let mut lane = self.tree.fingers.lane()?;
        let fits = |finger: &&Finger| {
            finger.covers(self.key) && finger.is_current() && self.tree.may_change(&finger.node)
        };
        let finger = lane.fingers.iter().flatten().find(fits)?;
        let slot = finger.node.node().child_slot(self.key);
        let expected = Expected::child(self.tree.id(), finger.node.node(), slot);
        let upper = finger.node.child_upper(slot, finger.upper);
        let leaf = self.hold_leaf(&expected, upper)?;
        if !finger.is_current() {
            return None;
        }
        let mut path = Path::new(leaf);
        path.upper = upper;
        let settled = self.settles(&mut path, expected.first_key == Some(self.key));
        lane.hits += u64::from(settled);
        settled.then_some(path)
    }

    fn hold_leaf(&self, expected: &Expected, upper: Option<Key>) -> Option<Held<'t>> {
        let (tree, counters) = (self.tree.id(), &self.tree.shared.locks);
        let key = expected.first_key.unwrap_or(Key::MIN);
        match self.tree.shared.in_memory(expected)? {
            InMemory::Clean(block) if self.intent == Intent::Read => {
                expected.check_upper(&block, upper).is_ok().then_some(Held::Clean(block))
            }
            InMemory::Live(live) if self.intent == Intent::Read => {
                Some(Held::Read(live.read(tree, key, counters)))
            }
            InMemory::Live(live) if self.tree.is_own(live.generation) => {
                let guard = live.write(tree, key, counters);
                self.tree.may_change(&guard).then_some(Held::Write(guard))
            }
            _ => None,
        }
    }

    /// Finds the place in the leaf; whether the change stays within it.
    fn settles(&self, path: &mut Path<'t>, is_first: bool) -> bool {
        let leaf = path.leaf().node();
        let (free, count) = (leaf.leaf_free_space(), leaf.nritems());
        let place = if is_first { Ok(0) } else { search_behind_first(leaf, self.key) };
        path.found = place.is_ok();
        path.steps[0].slot = place.unwrap_or_else(|slot| slot);
        match self.intent {
            Intent::Read | Intent::Modify => true,
            Intent::Insert { .. }
            | Intent::Put { .. }
            | Intent::Replace { .. }
            | Intent::Grow { .. }
            | Intent::Duplicate => self.intent.bytes_at(path).is_none_or(|bytes| bytes <= free),
            Intent::Delete { .. } | Intent::DeleteRun => {
                path.count = match self.intent {
                    Intent::Delete { last } => end_slot(path.leaf().node(), last) - path.slot(),
                    _ => run_length(path.leaf().node(), path.slot(), self.keys),
                };
                path.count == 0 || (path.slot() > 0 && path.count < count)
            }
            Intent::SetKey | Intent::Merge => false,
        }
    }
}
