//! The same request for each of many objects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use parking_lot::Mutex;

use crate::error::ObjectsError;

/// So many requests are made at once.
const AT_ONCE: usize = 8;

/// Makes a request for each of `objects`, several at once, and tells of each one that succeeded.
/// Makes no further ones after an error.
pub(crate) fn each<T: Sync>(
    objects: &[T],
    request: impl Fn(&T) -> Result<(), ObjectsError> + Sync,
    done: impl FnMut(&T) + Send,
) -> Result<(), ObjectsError> {
    let work = Work {
        objects,
        request,
        done: Mutex::new(done),
        next: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        error: Mutex::new(None),
    };
    thread::scope(|scope| work.run(scope));
    // Every thread has ended.
    work.error.into_inner().map_or(Ok(()), Err)
}

struct Work<'a, T, R, D> {
    objects: &'a [T],
    request: R,
    done: Mutex<D>,
    /// The next object of which no thread has begun.
    next: AtomicUsize,
    threads: AtomicUsize,
    /// The first one.
    error: Mutex<Option<ObjectsError>>,
}

impl<T, R, D> Work<'_, T, R, D>
where
    T: Sync,
    R: Fn(&T) -> Result<(), ObjectsError> + Sync,
    D: FnMut(&T) + Send,
{
    /// A thread's part of the work. As long as some is left, each thread starts one more: where a
    /// store answers faster than threads start, few do.
    fn run<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut has_started = false;
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(object) = self.objects.get(at) else { return };
            if at + 1 < self.objects.len() && !std::mem::replace(&mut has_started, true) {
                self.start_another(scope);
            }
            match (self.request)(object) {
                Ok(()) => (self.done.lock())(object),
                Err(error) => {
                    self.next.store(self.objects.len(), Ordering::Relaxed);
                    self.error.lock().get_or_insert(error);
                    return;
                }
            }
        }
    }

    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        if self.threads.fetch_add(1, Ordering::Relaxed) < AT_ONCE {
            scope.spawn(|| self.run(scope));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn as_many_requests_are_made_at_once_as_may_be() {
        for count in 1..3 * AT_ONCE {
            let (objects, together) = ((0..count).collect::<Vec<_>>(), AT_ONCE.min(count));
            // Each of the first ones waits for all of them.
            let (met, mut done) = (Barrier::new(together), 0);
            each(
                &objects,
                |at| {
                    if *at < together {
                        met.wait();
                    }
                    Ok(())
                },
                |_| done += 1,
            )
            .unwrap();
            assert_eq!(done, count);
        }
    }

    #[test]
    fn none_is_made_after_an_error_that_was_seen() {
        let made = AtomicUsize::new(0);
        let fail = |at: &usize| {
            made.fetch_add(1, Ordering::Relaxed);
            if *at == 3 { Err(ObjectsError::Failed { why: "no".to_owned() }) } else { Ok(()) }
        };
        let mut done = Vec::new();
        let error = each(&(0..10_000).collect::<Vec<_>>(), fail, |at| done.push(*at)).unwrap_err();
        assert!(error.to_string().contains("no"), "{error}");
        assert!(!done.contains(&3) && done.len() < made.into_inner());
    }
}
