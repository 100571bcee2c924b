//! Serving one request after another, over either transport.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Scope;

use rustix::io::Errno;

use super::awake::Awake;
use super::in_progress::InProgress;
use super::kernel::{Notify, Tell};
use super::readiness::Readiness;
use super::soon::Soon;
use crate::options::ServerOptions;
use crate::protocol::abi::{InHeader, opcode};
use crate::protocol::{Answer, Reply, Request};

/// Room in a request besides its data, and in a reply.
pub(super) const HEADROOM_BYTES: usize = 4096;

/// How many resources serving may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes that one WRITE brings or one READ asks for.
    pub(crate) io_bytes: usize,
    /// The most threads: so many slow operations can be in progress, and the next has to wait.
    pub(crate) threads: usize,
}

impl Limits {
    pub(crate) fn of(options: &ServerOptions) -> Self {
        Self { io_bytes: options.most_io_bytes, threads: options.most_threads }
    }
}

/// Serves requests of many threads at once.
pub(crate) trait Handler: Sync {
    /// Does what `request` asks for, and writes the body of the answer to `reply`.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer;

    /// The reply to `request`, whose body is `body` unless it was an error, reached no program.
    fn unheard(&self, _request: &Request<'_>, _body: &[u8], _kernel: &dyn Tell) {}
}

/// A connection to the kernel.
pub(crate) trait Transport: Sync {
    /// Makes `handler` serve requests until the file system is unmounted. Calls `begun` once the
    /// connection is [ready](super::readiness), unless it ends before.
    fn serve(&self, handler: &dyn Handler, begun: impl FnOnce()) -> io::Result<()>;
}

/// What all threads that serve a connection share.
#[derive(Clone, Copy)]
pub(super) struct Serving<'s, 'e> {
    pub(super) scope: &'s Scope<'s, 'e>,
    pub(super) device: &'s OwnedFd,
    pub(super) handler: &'s dyn Handler,
    pub(super) kernel: &'s dyn Notify,
    pub(super) soon: &'s Soon,
    pub(super) awake: &'s Awake,
    pub(super) readiness: &'s Readiness,
    pub(super) in_progress: &'s InProgress,
}

/// How a request was served, besides the body of the reply.
pub(super) struct Served {
    /// The error in the reply: 0, or a negative error number.
    pub(super) error: i32,
    pub(super) body_len: usize,
}

/// Serves `request`, unless it could not be read, in a thread that talks to the kernel through
/// `kernel`. `None` if the kernel expects no reply.
///
/// A handler that panics is a defect. The one request is answered with `EIO`, and the thread goes
/// on with the next.
pub(super) fn serve(
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

/// The answer to a request whose handler panicked.
fn after_panic(request: &Request<'_>) -> Answer {
    let InHeader { nodeid, pid, .. } = request.header();
    let opcode = request.opcode();
    tracing::error!("a request of process {pid} (opcode {opcode}, node {nodeid}) panicked");
    match opcode {
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Answer::Nothing,
        _ => Answer::Error(Errno::IO),
    }
}
