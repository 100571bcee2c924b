//! Repeating requests that failed for now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Layer, Problem, Store, StoreError};

/// The first pause between two attempts. Each one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long requests are repeated before the store has answered for the first time: its address is
/// probably wrong.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// A store whose requests are repeated, with growing pauses of random length, until one succeeds,
/// fails for good, or the time is up.
///
/// A repeated request with a condition may fail because the first attempt succeeded and its reply
/// was lost. Callers of [`Store::create`] and [`Store::replace`] look at what is there then.
#[derive(Debug)]
pub struct Retrying<S> {
    store: S,
    patience: Duration,
    has_answered: AtomicBool,
}

impl<S: Store> Retrying<S> {
    /// Repeats requests to `store` for up to `patience`, counted from the first attempt; at most
    /// for 5 seconds until the store has answered once.
    pub fn new(store: S, patience: Duration) -> Self {
        Self { store, patience, has_answered: AtomicBool::new(false) }
    }

    fn patience(&self) -> Duration {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        if has_answered { self.patience } else { self.patience.min(FIRST_PATIENCE) }
    }

    fn repeat<T>(&self, request: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut is_told = false;
        loop {
            let error = match request() {
                Err(error) if error.problem == Problem::Temporary => error,
                result => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return result;
                }
            };
            let left = self.patience().saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(error);
            }
            if !is_told && pause >= Duration::from_secs(1) {
                is_told = true;
                tracing::warn!("{error}; trying again for {} s", left.as_secs());
            }
            thread::sleep(jittered(pause).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
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
        _: &str,
        call: impl Fn(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.repeat(|| call(&self.store))
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
        let result = retrying.repeat(|| {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err(temporary()) } else { Ok(attempts.get()) }
        });
        assert_eq!(result.unwrap(), 4);
    }

    #[test]
    fn what_fails_for_good_is_not_repeated() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(60));
        let attempts = Cell::new(0);
        let result: Result<(), _> = retrying.repeat(|| {
            attempts.set(attempts.get() + 1);
            Err(StoreError::new(Problem::Denied, "store", "object", "for good"))
        });
        assert_eq!((result.unwrap_err().problem, attempts.get()), (Problem::Denied, 1));
    }

    #[test]
    fn a_store_that_never_answered_is_given_up_soon() {
        let retrying = Retrying::new(Directory::new("/nowhere"), Duration::from_secs(300));
        assert_eq!(retrying.patience(), FIRST_PATIENCE);
        let result: Result<(), _> = retrying
            .repeat(|| Err(StoreError::new(Problem::NotFound, "store", "object", "it answers")));
        assert_eq!(result.unwrap_err().problem, Problem::NotFound);
        assert_eq!(retrying.patience(), Duration::from_secs(300));
    }
}
