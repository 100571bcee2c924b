//! The two ways to tell the kernel something.

use std::io;

use crate::protocol::Notice;
use crate::protocol::abi::InitFlags;

/// The way to the kernel of a thread that serves no requests.
pub(crate) trait Notify: Sync {
    /// Tells the kernel, and returns when it has acted on the notice. Meanwhile the kernel may wait
    /// for requests to be served: it writes dirty data back before it forgets it, and waits for the
    /// lock of a directory before it forgets a name.
    ///
    /// # Errors
    /// The kernel's: it does not know the notice, or knows nothing to forget.
    fn notify(&self, notice: &Notice) -> io::Result<()>;

    /// The features of the transport besides carrying requests, for the kernel to accept.
    fn features(&self) -> InitFlags {
        InitFlags::empty()
    }
}

/// The way to the kernel of a thread that serves a request.
pub(crate) trait Tell: Sync {
    /// Tells the kernel, and returns when it has acted on the notice, if it could.
    ///
    /// # Errors
    /// This thread must not wait, since too few would be left to serve the requests that the kernel
    /// may wait for. The kernel was told nothing.
    fn now(&self, notice: &Notice) -> Result<(), MustNotWait>;

    /// Makes a thread that serves nothing tell the kernel, and returns at once.
    fn soon(&self, notice: Notice);

    /// Tells the kernel now; soon, if this thread must not wait.
    fn now_or_soon(&self, notice: Notice) {
        if let Err(MustNotWait) = self.now(&notice) {
            self.soon(notice);
        }
    }

    /// Whether the caller still waits for the reply to the request that this thread serves. Otherwise
    /// the caller was being killed, and `/proc` may describe another program by its number now.
    fn caller_waits(&self) -> bool {
        true
    }

    /// The features of the transport besides carrying requests, for the kernel to accept.
    fn features(&self) -> InitFlags {
        InitFlags::empty()
    }
}

/// A thread that serves requests must not wait for the kernel now.
#[derive(Debug)]
pub(crate) struct MustNotWait;
