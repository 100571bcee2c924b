//! A model of threads on as many processors, which repeat what recorded threads did with locks.
//!
//! Each thread has a processor of its own. Work takes as long as it took when it was recorded, with
//! one thread at a time. A lock admits readers together, or one writer. A thread that finds it
//! taken spins for a moment, then sleeps in the lock's queue; a release wakes the first writer of
//! the queue, or all readers before it, which try again when they are awake: a thread that comes
//! meanwhile can be faster. Two more costs do not show in the recording, and are parameters.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use larder_btree::{LockAction, Right};

use crate::trees::RecordedFile;

/// What costs time beside the recorded work, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A lock's cache line comes from the processor that had it last. Takes and releases of one
    /// lock do this one after the other.
    pub transfer: u64,
    /// How long a thread spins before it sleeps.
    pub spin: u64,
    /// From the release of a lock until a sleeping thread runs.
    pub wakeup: u64,
    /// What it cost to record a take or release; it is no part of the work.
    pub recording: u64,
}

/// What the threads of the model did.
pub struct Outcome {
    pub nanos: u64,
    pub files: u64,
    /// Takes that found the lock taken.
    pub blocked: u64,
}

impl Outcome {
    /// Files created in a second.
    pub fn rate(&self) -> f64 {
        self.files as f64 * 1e9 / self.nanos as f64
    }
}

#[derive(Clone, Copy)]
struct Step {
    /// Work before the action.
    work: u64,
    lock: usize,
    action: LockAction,
}

#[derive(Default)]
struct Lock {
    readers: usize,
    is_written: bool,
    /// Threads that sleep, and what they want.
    queue: VecDeque<(usize, Right)>,
    /// Threads that spin, what they want, and until when.
    spinning: Vec<(usize, Right, u64)>,
    /// The processor that has the cache line, and when it is free.
    owner: usize,
    line_free: u64,
}

impl Lock {
    fn admits(&self, right: Right) -> bool {
        !self.is_written && (right == Right::Read || self.readers == 0)
    }

    fn take(&mut self, right: Right) {
        match right {
            Right::Read => self.readers += 1,
            Right::Write => self.is_written = true,
        }
    }

    fn release(&mut self) {
        match self.readers {
            0 => self.is_written = false,
            _ => self.readers -= 1,
        }
    }

    /// When `thread`, which comes at `now`, has changed the lock's cache line.
    fn touch(&mut self, thread: usize, now: u64, transfer: u64) -> u64 {
        let begin = now.max(self.line_free);
        let end = if self.owner == thread { begin } else { begin + transfer };
        (self.owner, self.line_free) = (thread, end);
        end
    }
}

struct Model {
    costs: Costs,
    threads: Vec<Vec<Step>>,
    /// The next step of each thread.
    next: Vec<usize>,
    locks: HashMap<usize, Lock>,
    /// When each thread does its next step.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    blocked: u64,
    now: u64,
}

/// Repeats what each thread did.
pub fn repeat(recorded: &[Vec<RecordedFile>], costs: Costs) -> Outcome {
    let threads: Vec<_> = recorded.iter().map(|files| steps(files, costs.recording)).collect();
    let mut model = Model {
        costs,
        next: vec![0; threads.len()],
        threads,
        locks: HashMap::new(),
        due: BinaryHeap::new(),
        blocked: 0,
        now: 0,
    };
    for thread in 0..model.threads.len() {
        model.go_on(thread, 0);
    }
    while let Some(Reverse((now, thread))) = model.due.pop() {
        model.now = now;
        model.step(thread);
    }
    let files = recorded.iter().map(|files| files.len() as u64).sum();
    Outcome { nanos: model.now.max(1), files, blocked: model.blocked }
}

/// The steps of a thread: the work after the last action of a file is done before the first of the
/// next.
fn steps(files: &[RecordedFile], recording: u64) -> Vec<Step> {
    let (mut steps, mut rest) = (Vec::new(), 0);
    for file in files {
        let mut before = 0;
        for (at, event) in &file.events {
            let work = rest + (at - before).saturating_sub(recording);
            steps.push(Step { work, lock: event.lock, action: event.action });
            (before, rest) = (*at, 0);
        }
        rest = file.nanos.saturating_sub(before);
    }
    steps
}

impl Model {
    /// The thread works from `now` on until its next step.
    fn go_on(&mut self, thread: usize, now: u64) {
        self.now = self.now.max(now);
        if let Some(step) = self.threads[thread].get(self.next[thread]) {
            self.due.push(Reverse((now + step.work, thread)));
        }
    }

    fn step(&mut self, thread: usize) {
        let step = self.threads[thread][self.next[thread]];
        let Costs { transfer, spin, .. } = self.costs;
        let lock = self.locks.entry(step.lock).or_default();
        let done = lock.touch(thread, self.now, transfer);
        match step.action {
            LockAction::Take(right) if lock.admits(right) => {
                lock.take(right);
                self.next[thread] += 1;
                self.go_on(thread, done);
            }
            LockAction::Take(right) => {
                self.blocked += 1;
                lock.spinning.push((thread, right, self.now + spin));
            }
            LockAction::Release => {
                lock.release();
                self.next[thread] += 1;
                self.admit(step.lock, done);
                self.go_on(thread, done);
            }
        }
    }

    /// Lets threads that wait for a lock try again, after a release at `now`.
    fn admit(&mut self, lock: usize, now: u64) {
        let Some(lock) = self.locks.get_mut(&lock) else { return };
        let mut ready = Vec::new();
        for (thread, right, until) in std::mem::take(&mut lock.spinning) {
            if until < now {
                lock.queue.push_back((thread, right));
            } else if lock.admits(right) {
                lock.take(right);
                ready.push((thread, now + self.costs.transfer));
            } else {
                lock.spinning.push((thread, right, until));
            }
        }
        let mut woken = Vec::new();
        while let Some(&(thread, right)) = lock.queue.front()
            && lock.admits(right)
        {
            lock.queue.pop_front();
            woken.push(thread);
            if right == Right::Write {
                break;
            }
        }
        for (thread, at) in ready {
            self.next[thread] += 1;
            self.go_on(thread, at);
        }
        for thread in woken {
            self.due.push(Reverse((now + self.costs.wakeup, thread)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use larder_btree::LockEvent;

    use super::*;

    const FREE: Costs = Costs { transfer: 0, spin: 1_000, wakeup: 0, recording: 0 };

    /// A file of 100 ns, of which the thread holds a lock for 50.
    fn thread(right: Right, lock: usize, files: usize) -> Vec<RecordedFile> {
        let event = |action| LockEvent { at: Instant::now(), lock, action };
        let file = || RecordedFile {
            events: vec![(25, event(LockAction::Take(right))), (75, event(LockAction::Release))],
            nanos: 100,
        };
        (0..files).map(|_| file()).collect()
    }

    #[test]
    fn threads_of_different_locks_do_not_wait() {
        let threads: Vec<_> = (0..8).map(|lock| thread(Right::Write, lock, 100)).collect();
        let outcome = repeat(&threads, FREE);
        assert_eq!((outcome.nanos, outcome.blocked), (100 * 100 - 25, 0));
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let readers: Vec<_> = (0..8).map(|_| thread(Right::Read, 1, 100)).collect();
        assert_eq!(repeat(&readers, FREE).nanos, 100 * 100 - 25);
        let writers: Vec<_> = (0..8).map(|_| thread(Right::Write, 1, 100)).collect();
        let outcome = repeat(&writers, FREE);
        // The first thread takes the lock after 25 ns. From then on a thread always holds it.
        assert_eq!(outcome.nanos, 25 + 800 * 50);
    }

    #[test]
    fn all_work_is_done_when_threads_sleep() {
        let costs = Costs { transfer: 40, spin: 0, wakeup: 5_000, recording: 0 };
        let threads: Vec<_> = (0..8).map(|_| thread(Right::Write, 1, 100)).collect();
        let outcome = repeat(&threads, costs);
        assert!(outcome.blocked > 0);
        assert!(outcome.nanos > 25 + 800 * 50, "{}", outcome.nanos);
    }
}
