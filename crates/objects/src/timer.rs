//! Time that passes: the machine's, or one that a test sets.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use larder_platform::uptime;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// A thread that waits by a clock that somebody sets looks at it as often as this.
const LOOK: Duration = Duration::from_millis(1);

/// How threads measure time and wait. Those of one store use the same.
#[derive(Clone, Debug, Default)]
pub struct Timer(Option<Arc<Hands>>);

#[derive(Debug, Default)]
struct Hands {
    now: Mutex<Duration>,
    moved: Condvar,
}

impl Timer {
    /// One that stands still until somebody [advances](Self::advance) it. For tests.
    #[doc(hidden)]
    pub fn set_by_hand() -> Self {
        Self(Some(Arc::default()))
    }

    /// Lets time pass. For tests.
    #[doc(hidden)]
    pub fn advance(&self, by: Duration) {
        if let Some(hands) = &self.0 {
            *hands.now.lock() += by;
            hands.moved.notify_all();
        }
    }

    /// The time since a moment that stays the same.
    pub fn now(&self) -> Duration {
        self.0.as_ref().map_or_else(uptime, |hands| *hands.now.lock())
    }

    /// How long ago `since` was.
    pub(crate) fn elapsed(&self, since: Duration) -> Duration {
        self.now().saturating_sub(since)
    }

    pub(crate) fn sleep(&self, time: Duration) {
        let Some(hands) = &self.0 else { return thread::sleep(time) };
        let mut now = hands.now.lock();
        let end = *now + time;
        while *now < end {
            hands.moved.wait(&mut now);
        }
    }

    /// Waits until another thread changes what `guard` locks, or for so long.
    pub(crate) fn wait<T>(&self, changed: &Condvar, guard: &mut MutexGuard<'_, T>, time: Duration) {
        if self.0.is_none() {
            changed.wait_for(guard, time);
            return;
        }
        let end = self.now() + time;
        while self.now() < end && changed.wait_for(guard, LOOK).timed_out() {}
    }
}
