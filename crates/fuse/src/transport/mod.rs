//! How requests come from the kernel and replies go back: through [`/dev/fuse`](dev_fuse), and where the
//! kernel offers it most of them through [rings of io_uring](io_uring).

mod awake;
mod away;
pub(crate) mod block;
mod busy_poll;
mod dev_fuse;
mod io_uring;
mod mapping;
mod mount;
mod pool;
mod readahead;
mod readiness;
mod remount;
mod soon;
mod superblock;
mod tree;
mod version;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Scope;

pub(crate) use dev_fuse::DevFuse;
pub(crate) use mount::{Mounted, SyncCalls, TYPE, mount, mount_in_no_place, unmount_own};
pub use mount::{end, unmount};
pub use remount::remount;
use rustix::io::Errno;
pub(crate) use superblock::{Superblock, attributes};
pub use tree::{Tree, can_mount_parts};

use self::awake::Awake;
use self::readiness::Readiness;
use self::soon::Soon;
use crate::protocol::abi::{InHeader, InitFlags, opcode};
use crate::protocol::{Answer, Notice, Reply, Request};

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
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer;
}

/// The way to the kernel of a thread that serves no requests.
pub(crate) trait Notify: Sync {
    /// Tells the kernel, and returns when it has done what the notice says. The kernel may wait for requests to be
    /// served meanwhile: data that it forgets it writes back first, and before it forgets a name it waits until
    /// nobody changes the directory.
    ///
    /// # Errors
    /// The kernel's: it does not know the notice, or nothing that it could forget.
    fn notify(&self, notice: &Notice) -> io::Result<()>;

    /// What this way can do besides carrying requests, if the kernel wants it.
    fn features(&self) -> InitFlags {
        InitFlags::empty()
    }
}

/// The way to the kernel of a thread that serves a request.
pub(crate) trait Tell {
    /// Tells the kernel, and returns when it has done what the notice says, if it could.
    ///
    /// # Errors
    /// This thread must not wait, since too few would be left to serve what the kernel may wait for. The
    /// kernel was told nothing.
    fn now(&self, notice: &Notice) -> Result<(), MustNotWait>;

    /// Makes a thread that serves nothing tell the kernel, and returns at once.
    fn soon(&self, notice: Notice);

    /// Tells the kernel now; soon, if this thread must not wait.
    fn now_or_soon(&self, notice: Notice) {
        if let Err(MustNotWait) = self.now(&notice) {
            self.soon(notice);
        }
    }

    /// What this way can do besides carrying requests, if the kernel wants it.
    fn features(&self) -> InitFlags {
        InitFlags::empty()
    }
}

/// A thread that serves requests must not wait for the kernel now.
#[derive(Debug)]
pub(crate) struct MustNotWait;

/// A connection to the kernel.
pub(crate) trait Transport: Sync {
    /// Makes `handler` serve requests until the file system is unmounted. Calls `begun` once the connection is
    /// [ready](readiness), unless it ends before.
    fn serve(&self, handler: &dyn Handler, begun: impl FnOnce()) -> io::Result<()>;
}

/// What all threads that serve a connection share.
#[derive(Clone, Copy)]
struct Serving<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    device: &'s OwnedFd,
    handler: &'s dyn Handler,
    kernel: &'s dyn Notify,
    soon: &'s Soon,
    awake: &'s Awake,
    readiness: &'s Readiness,
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
    kernel: &dyn Tell,
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
