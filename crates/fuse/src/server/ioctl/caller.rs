//! Long work for a caller, which ends with the caller.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::call::Ioctl;

/// How soon work notices that its caller waits no more.
const LOOKS: Duration = Duration::from_millis(100);

/// Does `work`. Calls `cancel`, perhaps several times, once the caller got a signal or was killed.
pub(super) fn while_caller_waits<T>(
    ioctl: &Ioctl<'_>,
    cancel: &(dyn Fn() + Sync),
    work: impl FnOnce() -> T,
) -> Result<T, Errno> {
    let watch = ioctl.server.interrupts.watch(ioctl.call.unique);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let look = || {
            while !has_ended.load(Relaxed) {
                if watch.is_interrupted() || !ioctl.call.kernel.caller_waits() {
                    cancel();
                }
                thread::park_timeout(LOOKS);
            }
        };
        let watching = thread::Builder::new().name("larder-caller".into());
        let watching = watching.spawn_scoped(scope, look).map_err(|_| Errno::AGAIN)?;
        let done = work();
        has_ended.store(true, Relaxed);
        watching.thread().unpark();
        Ok(done)
    })
}
