//! The same request for each of many objects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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
    let (next, done) = (AtomicUsize::new(0), Mutex::new(done));
    let work = || {
        while let Some(object) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = request(object) {
                next.store(objects.len(), Ordering::Relaxed);
                return Err(error);
            }
            (done.lock())(object);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others = AT_ONCE.min(objects.len()).saturating_sub(1);
        let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        // This thread works as well.
        let own = work();
        let results = others.into_iter().map(|it| it.join().expect("it does not panic"));
        // Every thread has ended before the first error is returned.
        results.fold(own, Result::and)
    })
}
