//! Repeating requests that failed for now.
//!
//! # Invariants
//! - A request that fails takes at most the patience of the user, and the time of one attempt.
//! - A store for which that was not enough is lost. Until it answers, requests fail at once: a
//!   caller that tries each part of what it wants, or every copy, does not wait for each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Layer, Problem, Store, StoreError};
use crate::timer::Timer;
use crate::watch::Watch;

/// The first pause between two attempts. Each one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long requests are repeated before the store has answered for the first time: its address is
/// probably wrong.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// So often a request finds out whether a lost store answers.
const LOST_PAUSE: Duration = Duration::from_secs(5);

/// A store whose requests are repeated, with growing pauses of random length, until one succeeds,
/// fails for good, or the time is up.
///
/// A repeated request with a condition may fail because the first attempt succeeded and its reply
/// was lost: [`Store::create`] and [`Store::replace`] look at what is there then.
#[derive(Debug)]
pub struct Retrying<S> {
    store: S,
    timer: Timer,
    watch: Watch,
    patience: Mutex<Duration>,
    has_answered: AtomicBool,
    /// Whether a warning has told that it does not answer.
    is_told: AtomicBool,
    /// When the last request to a lost store failed.
    lost: Mutex<Option<Duration>>,
    /// The last error, until the store answers.
    trouble: Mutex<Option<String>>,
}

impl<S: Store> Retrying<S> {
    /// Repeats requests to `store` for up to `patience`, counted from the first attempt; at most
    /// for 5 seconds until the store has answered once.
    pub fn new(store: S, patience: Duration) -> Self {
        Self {
            timer: store.timer(),
            watch: store.watch().unwrap_or_default(),
            store,
            patience: Mutex::new(patience),
            has_answered: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            lost: Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    fn patience(&self) -> Duration {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        let patience = *self.patience.lock();
        if has_answered { patience } else { patience.min(FIRST_PATIENCE) }
    }

    fn repeat<T>(
        &self,
        name: &str,
        request: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let is_lost = match self.lost() {
            Some(failed) if self.timer.elapsed(failed) < LOST_PAUSE => {
                let why = "the store does not answer";
                return Err(StoreError::new(Problem::Temporary, self.store.name(), name, why));
            }
            lost => lost.is_some(),
        };
        let started = self.timer.now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match request() {
                Err(error) if error.problem == Problem::Temporary => error,
                result => {
                    self.note_answer();
                    return result;
                }
            };
            if self.trouble.lock().replace(error.to_string()).is_none() {
                self.watch.begin_outage();
            }
            let patience = if is_lost { Duration::ZERO } else { self.patience() };
            let left = patience.saturating_sub(self.timer.elapsed(started));
            if left.is_zero() {
                self.set_lost(Some(self.timer.now()));
                return Err(error);
            }
            if pause >= Duration::from_secs(1) && !self.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!("{error}; trying again for {} s", left.as_secs());
            }
            self.timer.sleep(jittered(pause).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
        if self.trouble.lock().take().is_some() {
            self.watch.end_outage();
        }
        if self.lost().is_some() {
            self.set_lost(None);
        }
        if self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Relaxed) {
            tracing::warn!("{}: the store answers again", self.store.name());
        }
    }

    fn lost(&self) -> Option<Duration> {
        *self.lost.lock()
    }

    fn set_lost(&self, lost: Option<Duration>) {
        *self.lost.lock() = lost;
    }
}

impl<S> Drop for Retrying<S> {
    fn drop(&mut self) {
        if self.trouble.lock().take().is_some() {
            self.watch.end_outage();
        }
    }
}

/// Between half of `pause` and all of it, so that clients of one server do not return together.
fn jittered(pause: Duration) -> Duration {
    let random = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[8..].try_into().expect("8"));
    pause / 2 + (pause / 2).mul_f64((random % 1024) as f64 / 1024.0)
}

impl<S: Store> Layer for Retrying<S> {
    type Below = S;

    fn below(&self) -> &S {
        &self.store
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.repeat(name, || call(&self.store))
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    fn have_patience_for(&self, time: Duration) {
        let mut patience = self.patience.lock();
        *patience = time.min(*patience);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::Directory;
    use super::*;

    fn temporary() -> StoreError {
        StoreError::new(Problem::Temporary, "store", "object", "for now")
    }

    #[test]
    fn what_fails_for_now_is_repeated_until_it_succeeds() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(60));
        let attempts = Cell::new(0);
        let result = retrying.repeat("object", || {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err(temporary()) } else { Ok(attempts.get()) }
        });
        assert_eq!(result.unwrap(), 4);
    }

    #[test]
    fn what_fails_for_good_is_not_repeated() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(60));
        let attempts = Cell::new(0);
        let result: Result<(), _> = retrying.repeat("object", || {
            attempts.set(attempts.get() + 1);
            Err(StoreError::new(Problem::Denied, "store", "object", "for good"))
        });
        assert_eq!((result.unwrap_err().problem, attempts.get()), (Problem::Denied, 1));
    }

    #[test]
    fn a_lost_store_is_not_waited_for_again_until_it_answers() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_millis(200));
        let attempts = Cell::new(0);
        let fail = || {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(temporary())
        };
        assert!(retrying.repeat("object", fail).is_err() && attempts.get() > 1);
        attempts.set(0);
        for _ in 0..100 {
            let error = retrying.repeat("object", fail).unwrap_err();
            assert!(error.to_string().contains("does not answer"), "{error}");
        }
        assert_eq!(attempts.get(), 0);
        // One request now and then finds out.
        let long_ago = retrying.timer.now().saturating_sub(LOST_PAUSE);
        retrying.set_lost(Some(long_ago));
        assert!(retrying.repeat("object", fail).is_err());
        assert_eq!(attempts.get(), 1);
        retrying.set_lost(Some(long_ago));
        retrying.repeat("object", || Ok(())).unwrap();
        assert!(retrying.lost().is_none());
        attempts.set(0);
        assert!(retrying.repeat("object", fail).is_err() && attempts.get() > 1);
    }

    #[test]
    fn patience_ends_sooner_for_requests_that_are_repeated_already() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(300));
        let attempts = Cell::new(0);
        let result: Result<(), _> = retrying.repeat("object", || {
            attempts.set(attempts.get() + 1);
            Layer::have_patience_for(&retrying, Duration::ZERO);
            Err(temporary())
        });
        assert_eq!((result.unwrap_err().problem, attempts.get()), (Problem::Temporary, 1));
    }

    #[test]
    fn a_store_that_never_answered_is_given_up_soon() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(300));
        assert_eq!(retrying.patience(), FIRST_PATIENCE);
        let result: Result<(), _> = retrying.repeat("object", || {
            Err(StoreError::new(Problem::NotFound, "store", "object", "it answers"))
        });
        assert_eq!(result.unwrap_err().problem, Problem::NotFound);
        assert_eq!(retrying.patience(), Duration::from_secs(300));
    }
}
