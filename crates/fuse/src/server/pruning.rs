//! Has the kernel forget what it remembers of deleted subvolumes.
//!
//! The room of a deleted subvolume comes back when nothing of it is open, and what the kernel
//! remembers counts as open. The kernel remembers names and inodes that no program uses until it is
//! short of memory. It drops those when a subvolume is deleted, but not those that a program has
//! open then, nor the folders above them, when that program closes them later.
//!
//! # Invariants
//! - A thread of its own tells the kernel, so that no thread that serves requests waits for what
//!   that leads to.
//! - As long as the kernel knows an inode of a deleted subvolume it is told again and again, ever
//!   more seldom. What is in use stays.

use std::io;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use zerocopy::IntoBytes;

use super::Server;
use crate::protocol::abi::{NOTIFY_PRUNE, NotifyPruneOut};
use crate::transport::Notify;

/// The kernel is told for the first time after this.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest time between two times.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Inodes that the kernel is told of at once.
const MOST_AT_ONCE: usize = 256;

/// The subvolumes that were deleted and of which the kernel may know inodes.
#[derive(Debug, Default)]
pub(super) struct Pruning {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    deleted: Vec<u64>,
    /// One was deleted since the thread looked.
    is_new: bool,
    is_ended: bool,
}

/// Ends the thread when dropped, also while a panic unwinds.
struct Ending<'p>(&'p Pruning);

impl Pruning {
    /// A subvolume was deleted.
    pub(super) fn note_deleted(&self, subvolume: u64) {
        let mut state = self.state.lock();
        state.deleted.push(subvolume);
        state.is_new = true;
        self.changed.notify_all();
    }

    /// Waits for subvolumes that were deleted, and for `pause` or until there is one more. Returns
    /// all, or none at the end, and whether there was one more.
    fn next(&self, pause: Duration) -> Option<(Vec<u64>, bool)> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.deleted.is_empty() && !state.is_ended);
        if !state.is_new && !state.is_ended {
            self.changed.wait_for(&mut state, pause);
        }
        let is_new = std::mem::take(&mut state.is_new);
        (!state.is_ended).then(|| (state.deleted.clone(), is_new))
    }

    /// The kernel knows nothing of these any more: nor will it, for what it looks up lies in a
    /// folder that it knows.
    fn forget(&self, gone: &[u64]) {
        self.state.lock().deleted.retain(|subvolume| !gone.contains(subvolume));
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

impl Server {
    /// Has the kernel forget deleted subvolumes while `serve` runs.
    pub(crate) fn with_pruning(
        &self,
        kernel: &dyn Notify,
        serve: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let _ending = Ending(&self.pruning);
            thread::Builder::new()
                .name("larder-prune".into())
                .spawn_scoped(scope, || self.prune(kernel))?;
            serve()
        })
    }

    fn prune(&self, kernel: &dyn Notify) {
        let (mut pause, mut known_before) = (FIRST_PAUSE, 0);
        while let Some((mut deleted, is_new)) = self.pruning.next(pause) {
            let known = self.nodes.of_subvolumes(&deleted);
            for some in known.chunks(MOST_AT_ONCE) {
                let ids: Vec<u64> = some.iter().map(|(_, id)| *id).collect();
                let header = NotifyPruneOut { count: ids.len() as u32, padding: 0, spare: 0 };
                // It fails before Linux 6.18: there the kernel forgets when it is short of memory.
                let _ = kernel.notify(NOTIFY_PRUNE, &[header.as_bytes(), ids.as_bytes()].concat());
            }
            // Forgotten inodes let go of the folders above them: those are next.
            let is_progress = is_new || known.len() < known_before;
            pause = if is_progress { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
            known_before = known.len();
            deleted.retain(|subvolume| known.iter().all(|(other, _)| other != subvolume));
            self.pruning.forget(&deleted);
        }
    }
}
