//! Makes the kernel forget inodes that no program uses.
//!
//! The kernel caches names and inodes until its own memory runs short, and the server has to
//! remember those inodes for as long. That is too long in two cases:
//! - There are too many of them for the memory that the server may use.
//! - They are of a deleted subvolume, whose space is freed only when none of its inodes is open.
//!   The kernel drops such inodes when the subvolume is deleted, except those that a program has
//!   open then, and the directories above them.
//!
//! # Invariants
//! - A thread of its own asks the kernel (`FUSE_NOTIFY_PRUNE`, since Linux 6.18): the kernel may
//!   wait for the server before it has dropped an inode, and no request waits for the thread. It
//!   holds no lock while it asks.
//! - As long as one of the two cases lasts, the thread asks again and again. If programs use the
//!   inodes, the pauses grow.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use larder_platform::errno::in_words;
use parking_lot::{Condvar, Mutex};

use super::nodes::Nodes;
use crate::protocol::Notice;
use crate::transport::Notify;

/// The time between the first two rounds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest time between two rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Inodes in one notice.
const BATCH: usize = 256;

/// The nodes of the server that serves now: servers are exchanged while the thread runs.
pub(super) trait CurrentNodes: Sync {
    /// Runs `look` on them. `None` if no file system is open.
    fn look<T>(&self, look: impl FnOnce(&Nodes) -> T) -> Option<T>;
}

/// The reasons to prune, which the thread waits for.
#[derive(Debug)]
pub(super) struct Pruning {
    most_nodes: usize,
    /// Whether there were too many nodes when a request last ended. Read without the lock.
    is_crowded: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Deleted subvolumes of which the kernel may know inodes.
    deleted: Vec<u64>,
    is_crowded: bool,
    /// A reason came up since the last round began.
    is_new: bool,
    is_ended: bool,
}

/// The reasons at the beginning of a round.
struct Round {
    deleted: Vec<u64>,
    is_crowded: bool,
    is_new: bool,
}

/// Ends the thread when dropped, also while a panic unwinds.
struct Ending<'p>(&'p Pruning);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

impl Pruning {
    /// Keeps at most about `most_nodes` nodes, unless programs use more.
    pub(super) fn new(most_nodes: usize) -> Self {
        let (is_crowded, state) = (AtomicBool::new(false), Mutex::default());
        Self { most_nodes, is_crowded, state, changed: Condvar::new() }
    }

    /// Notes that a subvolume was deleted.
    pub(super) fn note_deleted(&self, subvolume: u64) {
        let mut state = self.state.lock();
        state.deleted.push(subvolume);
        state.is_new = true;
        self.changed.notify_all();
    }

    /// Notes that there may be more nodes than before.
    pub(super) fn note_growth(&self, node_count: usize) {
        if node_count > self.most_nodes && !self.is_crowded.swap(true, Relaxed) {
            let mut state = self.state.lock();
            state.is_crowded = true;
            state.is_new = true;
            self.changed.notify_all();
        }
    }

    /// Whether there are too many nodes.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Relaxed)
    }

    /// Prunes while `serve` runs.
    pub(super) fn during(
        &self,
        nodes: &impl CurrentNodes,
        kernel: &dyn Notify,
        serve: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.state.lock().is_ended = false;
        thread::scope(|scope| {
            let _ending = Ending(self);
            let prune = || {
                if let Err(error) = self.prune(nodes, kernel) {
                    tracing::debug!(
                        "the kernel forgets inodes only by itself: {}",
                        in_words(&error)
                    );
                }
            };
            thread::Builder::new().name("larder-prune".into()).spawn_scoped(scope, prune)?;
            serve()
        })
    }

    /// Waits for a reason to prune. If the last round left one, waits for `pause` or until another
    /// comes up. Returns `None` at the end.
    fn next(&self, pause: Duration) -> Option<Round> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| {
            state.deleted.is_empty() && !state.is_crowded && !state.is_ended
        });
        if !state.is_new && !state.is_ended {
            self.changed.wait_for(&mut state, pause);
        }
        let is_new = std::mem::take(&mut state.is_new);
        let (deleted, is_crowded) = (state.deleted.clone(), state.is_crowded);
        (!state.is_ended).then_some(Round { deleted, is_crowded, is_new })
    }

    fn prune(&self, nodes: &impl CurrentNodes, kernel: &dyn Notify) -> io::Result<()> {
        let (mut pause, mut left_before) = (FIRST_PAUSE, 0);
        while let Some(Round { mut deleted, is_crowded, is_new }) = self.next(pause) {
            let of_deleted = nodes.look(|nodes| nodes.of_subvolumes(&deleted)).unwrap_or_default();
            let ids: Vec<u64> = of_deleted.iter().map(|(_, id)| *id).collect();
            ask_to_forget(&ids, kernel)?;
            if is_crowded {
                self.thin_out(nodes, kernel)?;
            }
            // A forgotten inode lets go of the directory above it: that is next.
            let left = of_deleted.len() + if is_crowded { node_count(nodes) } else { 0 };
            let is_progress = is_new || left < left_before;
            pause = if is_progress { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
            left_before = left;
            // The kernel knows no inode of these any more, and will know none: it looks names up
            // only in directories that it knows.
            deleted.retain(|subvolume| of_deleted.iter().all(|(other, _)| other != subvolume));
            self.end_round(&deleted, node_count(nodes));
        }
        Ok(())
    }

    /// Asks until a quarter of the nodes that are allowed is gone, or the kernel was asked for
    /// each.
    fn thin_out(&self, nodes: &impl CurrentNodes, kernel: &dyn Notify) -> io::Result<()> {
        let enough = self.most_nodes - self.most_nodes / 4;
        let all: Vec<Vec<u64>> = nodes.look(|nodes| nodes.ids().collect()).unwrap_or_default();
        for ids in all {
            ask_to_forget(&ids, kernel)?;
            if node_count(nodes) <= enough {
                break;
            }
        }
        Ok(())
    }

    fn end_round(&self, gone: &[u64], node_count: usize) {
        let mut state = self.state.lock();
        state.deleted.retain(|subvolume| !gone.contains(subvolume));
        if node_count <= self.most_nodes {
            state.is_crowded = false;
            self.is_crowded.store(false, Relaxed);
        }
    }
}

/// How many nodes there are; see [`Nodes::count_as_open`].
fn node_count(nodes: &impl CurrentNodes) -> usize {
    nodes.look(Nodes::count_as_open).unwrap_or(0)
}

/// Asks the kernel to forget nodes that no program uses.
fn ask_to_forget(ids: &[u64], kernel: &dyn Notify) -> io::Result<()> {
    for batch in ids.chunks(BATCH) {
        kernel.notify(&Notice::unused(batch))?;
    }
    Ok(())
}
