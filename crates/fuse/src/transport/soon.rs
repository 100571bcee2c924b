//! Telling the kernel something from a thread that serves nothing.
//!
//! # Invariants
//! - No request waits for this thread, so that it may wait in the kernel for any request.
//! - Equal pending notices are one.

use std::collections::BTreeSet;
use std::io;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::kernel::Notify;
use crate::protocol::Notice;

/// Notices that the kernel has not been given yet.
#[derive(Debug, Default)]
pub(super) struct Soon {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    notices: BTreeSet<Notice>,
    is_ended: bool,
}

/// Ends the thread when dropped, also while a panic unwinds.
struct Ending<'s>(&'s Soon);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

impl Soon {
    /// Makes the thread tell the kernel `notice`, unless serving ends before.
    pub(super) fn post(&self, notice: Notice) {
        self.state.lock().notices.insert(notice);
        self.changed.notify_all();
    }

    /// Tells the kernel what is posted while `serve` runs.
    pub(super) fn during(
        &self,
        kernel: &dyn Notify,
        serve: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let _ending = Ending(self);
            let tell = || {
                while let Some(notice) = self.next() {
                    // It fails if the kernel knows nothing to forget.
                    let _ = kernel.notify(&notice);
                }
            };
            thread::Builder::new().name("larder-tell".into()).spawn_scoped(scope, tell)?;
            serve()
        })
    }

    /// Waits for a notice. Returns `None` at the end.
    fn next(&self) -> Option<Notice> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.notices.is_empty() && !state.is_ended);
        if state.is_ended { None } else { state.notices.pop_first() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that keeps what it was told.
    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Notice>>, Condvar);

    impl Notify for Told {
        fn notify(&self, notice: &Notice) -> io::Result<()> {
            self.0.lock().push(notice.clone());
            self.1.notify_all();
            Ok(())
        }
    }

    #[test]
    fn each_notice_that_waits_is_told_once() {
        let (soon, kernel) = (Soon::default(), Told::default());
        (0..6).for_each(|number| soon.post(Notice::attributes(number / 2)));
        let serve = || {
            let mut told = kernel.0.lock();
            kernel.1.wait_while(&mut told, |told| told.len() < 3);
            Ok(())
        };
        soon.during(&kernel, serve).unwrap();
        let told = kernel.0.into_inner();
        assert_eq!(told, (0..3).map(Notice::attributes).collect::<Vec<_>>());
    }
}
