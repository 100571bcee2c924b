//! How requests come from the kernel and replies go back.

mod dev_fuse;
mod mount;

use std::io;

pub(crate) use dev_fuse::DevFuse;
pub(crate) use mount::mount;
pub use mount::{mounted_from, unmount};

use crate::protocol::{Answer, Reply, Request};

/// The most bytes that one WRITE brings or one READ asks for.
pub(crate) const MAX_IO_BYTES: usize = 1 << 20;
/// Room that a request takes besides its data, and a reply besides its own.
const HEADROOM_BYTES: usize = 4096;

/// Serves requests, many threads at once.
pub(crate) trait Handler: Sync {
    /// Does what `request` asks for, and writes the body of what comes of it to `reply`.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Notify) -> Answer;
}

/// A way to tell the kernel that something changed which it did not change itself.
pub(crate) trait Notify: Sync {
    /// Sends a notification: `code` is one of `enum fuse_notify_code`, `body` what goes with it.
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()>;
}

/// A connection to the kernel.
pub(crate) trait Transport: Sync {
    /// Has `handler` serve requests until the file system is unmounted.
    fn serve(&self, handler: &dyn Handler) -> io::Result<()>;
}
