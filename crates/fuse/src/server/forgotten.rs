//! Waiting until the kernel has forgotten inodes.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes threads that wait until the kernel has forgotten an inode.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    waiting: AtomicUsize,
    /// How many inodes were forgotten while a thread waited.
    count: Mutex<u64>,
    /// The count has grown.
    grew: Condvar,
}

impl Forgotten {
    /// Notes that the kernel has forgotten an inode, which is not in the table any more.
    pub(super) fn note(&self) {
        if self.waiting.load(SeqCst) > 0 {
            *self.count.lock() += 1;
            self.grew.notify_all();
        }
    }

    /// Waits until `is_done`, which becomes true when the kernel forgets an inode. Gives up when it
    /// has forgotten none for `silence`, or after `patience`, even if it goes on.
    pub(super) fn wait_until(
        &self,
        is_done: impl Fn() -> bool,
        silence: Duration,
        patience: Duration,
    ) {
        let start = std::time::Instant::now();
        // Before it looks: from now on nothing that is forgotten goes unseen.
        self.waiting.fetch_add(1, SeqCst);
        let mut count = self.count.lock();
        let mut is_silent = false;
        while !is_silent && start.elapsed() < patience {
            let seen = *count;
            drop(count);
            let done = is_done();
            count = self.count.lock();
            if done {
                break;
            }
            let has_none = |count: &mut u64| *count == seen;
            is_silent = self.grew.wait_while_for(&mut count, has_none, silence).timed_out();
        }
        drop(count);
        self.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_thread_waits_until_the_last_inode_is_forgotten() {
        let (forgotten, left) = (Forgotten::default(), AtomicU32::new(100));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                forgotten.wait_until(|| left.load(SeqCst) == 0, LONG, LONG);
                left.load(SeqCst)
            });
            for _ in 0..100 {
                left.fetch_sub(1, SeqCst);
                forgotten.note();
            }
            assert_eq!(waiter.join().unwrap(), 0);
        });
    }

    #[test]
    fn it_gives_up_when_no_inode_is_forgotten() {
        let forgotten = Forgotten::default();
        forgotten.wait_until(|| false, Duration::ZERO, LONG);
        forgotten.wait_until(|| false, LONG, Duration::ZERO);
        assert_eq!(forgotten.waiting.load(SeqCst), 0);
    }
}
