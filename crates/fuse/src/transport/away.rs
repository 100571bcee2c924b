//! Telling the kernel something from a thread that serves requests.
//!
//! # Invariants
//! - The kernel may wait, in the thread that tells it, for requests to be served. Such a thread is away from its pool
//!   meanwhile: another serves in its place, so that any number of them can wait.

use std::io;

use super::Notify;
use super::pool::Pool;
use crate::protocol::abi::InitFlags;

/// The way to the kernel of a thread of `pool`.
pub(super) struct FromPool<'p> {
    pub(super) kernel: &'p dyn Notify,
    pub(super) pool: &'p Pool,
    /// Starts another thread of the pool.
    pub(super) start: &'p (dyn Fn() -> io::Result<()> + Sync),
}

impl Notify for FromPool<'_> {
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        if self.pool.goes_away()
            && let Err(error) = (self.start)()
        {
            self.pool.comes_back();
            return Err(io::Error::new(io::ErrorKind::WouldBlock, error));
        }
        let told = self.kernel.notify(code, body);
        self.pool.comes_back();
        told
    }

    fn features(&self) -> InitFlags {
        self.kernel.features()
    }
}
