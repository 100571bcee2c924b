//! Work in another thread, while this one watches the jobs that it begins.

use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::job::Job;
use crate::registry::Jobs;

/// How often a watcher looks.
const LOOKS: Duration = Duration::from_millis(50);

impl Jobs {
    /// Does `work` in another thread. Meanwhile calls `look` in this one, again and again and once
    /// at the end, with the jobs that the other thread has begun and not ended. After `look` says
    /// that it is enough, it is called no more, and all jobs of that thread are cancelled.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn watch<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
        mut look: impl FnMut(&[Arc<Job>]) -> ControlFlow<()>,
    ) -> io::Result<T> {
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            let work = move || {
                // It is dropped after the work, also by a panic.
                let _end = end;
                work()
            };
            let worker = thread::Builder::new().name("larder-work".into());
            let worker = worker.spawn_scoped(scope, work)?;
            let id = worker.thread().id();
            let mut is_enough = false;
            let mut has_ended = false;
            while !has_ended {
                has_ended = ended.recv_timeout(LOOKS) != Err(RecvTimeoutError::Timeout);
                let mut own = self.running();
                own.retain(|job| job.thread() == id);
                is_enough = is_enough || look(&own).is_break();
                if is_enough {
                    for job in &own {
                        job.cancel();
                    }
                }
            }
            Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Cancelled;
    use crate::kind::JobKind;

    #[test]
    fn a_watcher_sees_and_cancels_what_the_work_begins() {
        let jobs = Jobs::default();
        let _other = jobs.begin(JobKind::Scrub { device: 1 }, 7).unwrap();
        let mut most_bytes = 0;
        let worked = jobs.watch(
            || -> Result<(), Cancelled> {
                let job = jobs.begin(JobKind::Scrub { device: 2 }, 1 << 40).unwrap();
                loop {
                    job.step(1)?;
                    job.advance(1);
                    thread::yield_now();
                }
            },
            |own| {
                assert!(own.iter().all(|job| job.kind() == JobKind::Scrub { device: 2 }));
                most_bytes = own.iter().map(|job| job.status().done_bytes).sum();
                if most_bytes > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(worked.unwrap(), Err(Cancelled));
        assert!(most_bytes > 0);
        assert_eq!(jobs.running().len(), 1);
        let (mut looks, stops) = (0, ControlFlow::Continue(()));
        let done = jobs.watch(
            || 7,
            |own| {
                assert!(own.is_empty());
                looks += 1;
                stops
            },
        );
        assert!(done.unwrap() == 7 && looks > 0);
    }
}
