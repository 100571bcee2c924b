//! How many threads the system lets run at once.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

/// How many threads of this process run at once: as many as there are processors, fewer if a cgroup
/// or the affinity of the process allows fewer.
pub fn threads() -> NonZero<usize> {
    static THREADS: OnceLock<NonZero<usize>> = OnceLock::new();
    let count = || {
        // The calling thread may have an affinity of its own.
        let counted = thread::Builder::new().spawn(|| {
            use_all();
            thread::available_parallelism().ok()
        });
        counted.ok()?.join().ok()?
    };
    *THREADS.get_or_init(|| count().unwrap_or(NonZero::<usize>::MIN))
}

/// Lets the calling thread run on all processors of the process.
pub(crate) fn use_all() {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{sched_getaffinity, sched_setaffinity};
        // The affinity of the process is that of its first thread. Without it, threads are slower,
        // no more.
        let of_process = sched_getaffinity(Some(rustix::process::getpid()));
        let _ = of_process.and_then(|processors| sched_setaffinity(None, &processors));
    }
}
