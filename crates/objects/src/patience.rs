//! A writer's patience: memory has what it has written, so it repeats requests as long as they may
//! succeed and the device is its own.

use std::time::Duration;

use larder_device::Trouble;
use parking_lot::Mutex;

use crate::error::ObjectsError;
use crate::timer::Timer;
use crate::watch::Watch;

const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Repeats requests, and knows why those of all threads wait that do.
#[derive(Debug)]
pub(crate) struct Patience {
    timer: Timer,
    watch: Watch,
    /// For ever, if there is none.
    most: Mutex<Option<Duration>>,
    /// When it ends, once nothing is lost by an error any more.
    end: Mutex<Option<Duration>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: usize,
    /// Of the last one that failed.
    last: Option<Trouble>,
}

impl Patience {
    /// Repeats each request for up to `most`; for ever, if there is none.
    pub(crate) fn new(most: Option<Duration>, timer: Timer, watch: Watch) -> Self {
        let (end, waiting) = (Mutex::default(), Mutex::default());
        Self { timer, watch, most: Mutex::new(most), end, waiting }
    }

    /// Why requests wait, if any does.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.waiting.lock().last.clone()
    }

    /// Repeats requests for so long only: all that was written is in the store.
    pub(crate) fn end_after(&self, time: Duration) {
        *self.end.lock() = Some(self.timer.now() + time);
    }

    /// Repeats each request for up to `time`.
    pub(crate) fn shorten(&self, time: Duration) {
        let mut most = self.most.lock();
        *most = most.into_iter().chain([time]).min();
    }

    /// How long a request is still repeated that was made first at `began`. `None`: for ever.
    fn left(&self, began: Duration) -> Option<Duration> {
        let end = self.end.lock().map(|end| end.saturating_sub(self.timer.now()));
        let left = self.most.lock().map(|most| most.saturating_sub(self.timer.elapsed(began)));
        end.into_iter().chain(left).min()
    }

    /// Makes a request until it succeeds, fails for good, or the time is over. Between two attempts
    /// `go_on` may end it.
    pub(crate) fn repeat<T>(
        &self,
        go_on: impl Fn() -> Result<(), ObjectsError>,
        mut request: impl FnMut() -> Result<T, ObjectsError>,
    ) -> Result<T, ObjectsError> {
        let error = match request() {
            Err(error) if error.is_passing() => error,
            result => return result,
        };
        let began = self.timer.now();
        if self.left(began) == Some(Duration::ZERO) {
            return Err(error);
        }
        self.begin_to_wait(&error);
        let result = self.go_on(began, go_on, request, error);
        let mut waiting = self.waiting.lock();
        waiting.requests -= 1;
        if waiting.requests == 0 {
            waiting.last = None;
            self.watch.end_outage();
        }
        result
    }

    fn go_on<T>(
        &self,
        began: Duration,
        go_on: impl Fn() -> Result<(), ObjectsError>,
        mut request: impl FnMut() -> Result<T, ObjectsError>,
        mut error: ObjectsError,
    ) -> Result<T, ObjectsError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let left = self.left(began).unwrap_or(pause);
            if left.is_zero() {
                return Err(error);
            }
            self.timer.sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
            go_on()?;
            error = match request() {
                Err(error) if error.is_passing() => error,
                result => return result,
            };
            self.waiting.lock().last = Some(trouble(&error));
        }
    }

    fn begin_to_wait(&self, error: &ObjectsError) {
        let mut waiting = self.waiting.lock();
        if waiting.requests == 0 {
            tracing::warn!("{error}; what was written waits in memory, and is sent again");
            self.watch.begin_outage();
        }
        waiting.requests += 1;
        waiting.last = Some(trouble(error));
    }
}

fn trouble(error: &ObjectsError) -> Trouble {
    Trouble { why: error.to_string(), is_full: error.is_full() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::{Problem, StoreError};

    fn fail(problem: Problem) -> Result<(), ObjectsError> {
        Err(StoreError::new(problem, "store", "object", "no").into())
    }

    #[test]
    fn what_may_succeed_later_is_repeated_and_told_meanwhile() {
        let patience = Patience::new(None, Timer::default(), Watch::default());
        for problem in [Problem::Temporary, Problem::Denied, Problem::Full, Problem::Other] {
            let attempts = Cell::new(0);
            let request = || {
                attempts.set(attempts.get() + 1);
                if attempts.get() < 4 { fail(problem) } else { Ok(()) }
            };
            let go_on = || {
                let trouble = patience.trouble().unwrap();
                assert!(trouble.why.contains("no"), "{trouble:?}");
                assert_eq!(trouble.is_full, problem == Problem::Full);
                Ok(())
            };
            patience.repeat(go_on, request).unwrap();
            assert_eq!((attempts.get(), patience.trouble()), (4, None));
        }
    }

    #[test]
    fn answers_are_final_and_a_device_that_is_lost_ends_it() {
        let patience = Patience::new(None, Timer::default(), Watch::default());
        for problem in [Problem::NotFound, Problem::Condition] {
            let attempts = Cell::new(0);
            let request = || {
                attempts.set(attempts.get() + 1);
                fail(problem)
            };
            assert!(patience.repeat(|| Ok(()), request).is_err());
            assert_eq!(attempts.get(), 1);
        }
        let fenced = || Err(ObjectsError::Failed { why: "another".to_owned() });
        let result = patience.repeat(fenced, || fail(Problem::Temporary));
        assert!(matches!(result, Err(ObjectsError::Failed { .. })), "{result:?}");
        assert_eq!(patience.trouble(), None);
    }

    #[test]
    fn where_nothing_can_be_lost_there_is_no_patience() {
        let patience = Patience::new(None, Timer::default(), Watch::default());
        let go_on = || {
            patience.end_after(Duration::ZERO);
            Ok(())
        };
        assert!(patience.repeat(go_on, || fail(Problem::Denied)).is_err());
        assert!(patience.repeat(|| panic!("it goes on"), || fail(Problem::Denied)).is_err());
    }

    #[test]
    fn patience_has_an_end_if_the_user_wants_one() {
        for most in [Duration::ZERO, Duration::from_millis(100)] {
            let patience = Patience::new(Some(most), Timer::default(), Watch::default());
            assert!(patience.repeat(|| Ok(()), || fail(Problem::Denied)).is_err());
            assert_eq!(patience.trouble(), None);
        }
    }
}
