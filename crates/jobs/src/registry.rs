//! The jobs of a file system.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::job::Job;
use crate::kind::JobKind;

/// The jobs of one file system that run now.
#[derive(Debug, Default)]
pub struct Jobs {
    running: Mutex<Vec<Arc<Job>>>,
    ended: Condvar,
}

/// Another job excludes the one that was to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} cannot begin: {by} is running")]
pub struct Excluded {
    /// The one that was to begin.
    pub wanted: JobKind,
    /// The one that runs.
    pub by: JobKind,
}

/// A job that runs. The thread that does the work holds this, and ends the job when it drops it.
#[derive(Debug)]
pub struct Running<'j> {
    jobs: &'j Jobs,
    job: Arc<Job>,
}

impl Jobs {
    /// Begins a job that has about so many bytes to do.
    pub fn begin(&self, kind: JobKind, total_bytes: u64) -> Result<Running<'_>, Excluded> {
        let mut running = self.running.lock();
        if let Some(other) = running.iter().find(|other| kind.excludes(other.kind())) {
            return Err(Excluded { wanted: kind, by: other.kind() });
        }
        let job = Arc::new(Job::new(kind, total_bytes));
        running.push(job.clone());
        Ok(Running { jobs: self, job })
    }

    /// Cancels the jobs for which `is_one` holds, and returns when they have ended.
    pub fn end(&self, is_one: impl Fn(JobKind) -> bool) {
        let mut running = self.running.lock();
        while running.iter().any(|job| is_one(job.kind())) {
            running.iter().filter(|job| is_one(job.kind())).for_each(|job| job.cancel());
            self.ended.wait(&mut running);
        }
    }

    /// Those that run now, in the order in which they began.
    pub fn running(&self) -> Vec<Arc<Job>> {
        self.running.lock().clone()
    }
}

impl Running<'_> {
    /// The job, for those who watch it.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }
}

impl Deref for Running<'_> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.jobs.running.lock().retain(|job| !Arc::ptr_eq(job, &self.job));
        self.jobs.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::job::Cancelled;

    const FIRST: JobKind = JobKind::Scrub { device: 1 };

    #[test]
    fn a_job_excludes_its_like_until_it_ends() {
        let jobs = Jobs::default();
        let first = jobs.begin(FIRST, 10).unwrap();
        let refused = jobs.begin(FIRST, 10).unwrap_err();
        assert_eq!(refused, Excluded { wanted: FIRST, by: FIRST });
        assert!(refused.to_string().contains("scrub of device 1 is running"));
        let other = jobs.begin(JobKind::Scrub { device: 2 }, 10).unwrap();
        let _added = jobs.begin(JobKind::AddDevice, 0).unwrap();
        assert_eq!(jobs.begin(JobKind::Balance, 0).unwrap_err().by, FIRST);
        assert_eq!(jobs.running().len(), 3);
        drop(first);
        assert_eq!(jobs.running()[0].kind(), other.kind());
        assert!(jobs.begin(FIRST, 10).is_ok());
    }

    #[test]
    fn a_job_pauses_and_ends_when_it_is_told() {
        let jobs = Jobs::default();
        let running = jobs.begin(FIRST, 100).unwrap();
        running.pause();
        let watcher = running.job().clone();
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                running.step(10)?;
                running.advance(10);
                running.step(10)
            });
            assert!(watcher.status().is_paused && watcher.status().done_bytes == 0);
            watcher.go_on();
            while watcher.status().done_bytes == 0 {
                thread::yield_now();
            }
            assert_eq!(work.join().unwrap(), Ok(()));
            watcher.pause();
            let work = scope.spawn(|| running.step(10));
            watcher.cancel();
            assert_eq!(work.join().unwrap(), Err(Cancelled));
        });
    }

    #[test]
    fn a_job_that_is_to_end_has_ended() {
        let jobs = Jobs::default();
        let running = jobs.begin(FIRST, 100).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                while running.step(1).is_ok() {
                    thread::yield_now();
                }
                drop(running);
            });
            jobs.end(|kind| kind == FIRST);
            assert!(jobs.running().is_empty());
        });
    }

    #[test]
    fn lifting_a_limit_ends_the_wait_for_it() {
        let jobs = Jobs::default();
        let running = jobs.begin(FIRST, 100).unwrap();
        running.set_limit(Some(1));
        thread::scope(|scope| {
            let work = scope.spawn(|| running.step(1 << 40));
            running.job().set_limit(None);
            assert_eq!(work.join().unwrap(), Ok(()));
        });
    }
}
