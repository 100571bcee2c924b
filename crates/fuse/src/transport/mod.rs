//! How requests come from the kernel and replies go back: through [`/dev/fuse`](dev_fuse), and where the
//! kernel offers it most of them through [rings of io_uring](io_uring).

mod away;
pub(crate) mod block;
mod dev_fuse;
mod io_uring;
mod lookout;
mod mapping;
mod mount;
mod pool;
mod readahead;
mod remount;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Scope;

pub(crate) use dev_fuse::DevFuse;
pub(crate) use mount::{Mounted, SyncCalls, TYPE, mount, unmount_own};
pub use mount::{end, unmount};
pub use remount::remount;
use rustix::io::Errno;

use crate::protocol::abi::{InHeader, InitFlags, opcode};
use crate::protocol::{Answer, Reply, Request};

/// Room that a request takes besides its data, and a reply besides its own.
const HEADROOM_BYTES: usize = 4096;

/// How much serving may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes that one WRITE brings or one READ asks for.
    pub(crate) io_bytes: usize,
    /// Threads at most: so many slow operations can be on the way, and one more has to wait.
    pub(crate) threads: usize,
}

/// Serves requests, many threads at once.
pub(crate) trait Handler: Sync {
    /// Does what `request` asks for, and writes the body of what comes of it to `reply`.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Notify) -> Answer;
}

/// The way to the kernel, for what it does not ask for.
pub(crate) trait Notify: Sync {
    /// Sends a notification: `code` is one of `enum fuse_notify_code`, `body` what goes with it. The kernel may
    /// ask for something before it returns from taking it: data that it forgets it has written back first, and
    /// before it forgets a name it waits until the directory is not being changed.
    ///
    /// # Errors
    /// `WouldBlock` if nobody could be found who serves the kernel meanwhile; the kernel was told nothing. Others are the
    /// kernel's.
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()>;

    /// What this way can do besides carrying requests, if the kernel wants it.
    fn features(&self) -> InitFlags {
        InitFlags::empty()
    }
}

/// A connection to the kernel.
pub(crate) trait Transport: Sync {
    /// Has `handler` serve requests until the file system is unmounted.
    fn serve(&self, handler: &dyn Handler) -> io::Result<()>;
}

/// What all threads that serve a connection share.
#[derive(Clone, Copy)]
struct Serving<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    device: &'s OwnedFd,
    handler: &'s dyn Handler,
    kernel: &'s dyn Notify,
}

/// What came of a request, besides the body of the reply.
struct Served {
    /// As the reply says it: 0, or the negative number of an error.
    error: i32,
    body_len: usize,
}

/// Serves `request`, if it could be read, in a thread that talks to the kernel through `kernel`. `None` if
/// the kernel waits for no reply.
///
/// A handler that panics is a defect. The one request is answered with `EIO`, and the thread goes on with the
/// next.
fn serve(
    request: Result<Request<'_>, Errno>,
    reply: &mut Reply<'_>,
    handler: &dyn Handler,
    kernel: &dyn Notify,
) -> Option<Served> {
    let answer = match request {
        Ok(request) => {
            let handle = || handler.handle(&request, reply, kernel);
            catch_unwind(AssertUnwindSafe(handle)).unwrap_or_else(|_| after_panic(&request))
        }
        Err(errno) => Answer::Error(errno),
    };
    match answer {
        Answer::Reply => Some(Served { error: 0, body_len: reply.len() }),
        Answer::Error(errno) => Some(Served { error: -errno.raw_os_error(), body_len: 0 }),
        Answer::Nothing => None,
    }
}

/// What a request comes to whose handler panicked.
fn after_panic(request: &Request<'_>) -> Answer {
    let InHeader { nodeid, pid, .. } = request.header();
    let opcode = request.opcode();
    tracing::error!("a request of process {pid} (opcode {opcode}, node {nodeid}) panicked");
    match opcode {
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Answer::Nothing,
        _ => Answer::Error(Errno::IO),
    }
}
