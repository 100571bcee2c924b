//! Requests and replies through reads and writes of `/dev/fuse`.
//!
//! # Invariants
//! - Each thread reads from a descriptor of its own and answers through the same: the kernel keeps what
//!   is on the way by descriptor.
//! - As long as there may be more threads, one waits for requests whatever the others do: who takes a
//!   request when nobody else waits starts another thread first.
//! - A thread has one buffer for requests and one for replies, as long as it lives.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Scope};

use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use zerocopy::{FromBytes, IntoBytes};

use super::{HEADROOM_BYTES, Handler, MAX_IO_BYTES, Notify, Transport};
use crate::protocol::abi::{InHeader, OutHeader};
use crate::protocol::{Answer, Reply, Request};

/// Threads at most: so many slow operations can be on the way, and one more has to wait.
const MOST_THREADS: usize = 128;
/// Threads that wait for requests at most; more end.
const MOST_IDLE_THREADS: usize = 4;
/// `FUSE_DEV_IOC_CLONE` of linux/fuse.h.
const FUSE_DEV_IOC_CLONE: Opcode = opcode::read::<u32>(229, 0);

/// A connection through `/dev/fuse`.
#[derive(Debug)]
pub(crate) struct DevFuse {
    device: OwnedFd,
}

/// The threads that serve.
#[derive(Debug, Default)]
struct Pool {
    threads: AtomicUsize,
    idle: AtomicUsize,
}

/// What a thread reads into and writes from.
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl DevFuse {
    /// The connection that `device`, an open `/dev/fuse`, was mounted with.
    pub(crate) fn new(device: OwnedFd) -> Self {
        Self { device }
    }

    /// A further descriptor of the connection. Where the device cannot be opened again, which is so for
    /// a user whom only `fusermount3` lets mount, it shares the queue of the first.
    fn another(&self) -> io::Result<OwnedFd> {
        let options = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(another) = options else { return self.device.try_clone() };
        let mut first = self.device.as_raw_fd() as u32;
        // SAFETY: the request reads the number of a descriptor from 32 bits and writes nothing.
        unsafe { ioctl(&another, Updater::<FUSE_DEV_IOC_CLONE, u32>::new(&mut first)) }?;
        Ok(another.into())
    }

    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        pool: &'s Pool,
        handler: &'s dyn Handler,
    ) -> io::Result<()> {
        let device = self.another()?;
        pool.threads.fetch_add(1, SeqCst);
        pool.idle.fetch_add(1, SeqCst);
        let serve = move || {
            self.serve_one_by_one(&device, scope, pool, handler);
            pool.threads.fetch_sub(1, SeqCst);
        };
        let started = thread::Builder::new().name("larder-fuse".into()).spawn_scoped(scope, serve);
        if started.is_err() {
            pool.threads.fetch_sub(1, SeqCst);
            pool.idle.fetch_sub(1, SeqCst);
        }
        started.map(|_| ())
    }

    /// Serves one request after another until the connection ends, or until there are threads enough.
    fn serve_one_by_one<'s>(
        &'s self,
        device: &OwnedFd,
        scope: &'s Scope<'s, '_>,
        pool: &'s Pool,
        handler: &'s dyn Handler,
    ) {
        let mut buffers = Buffers::new();
        loop {
            let received = buffers.receive(device);
            let nobody_waits = pool.idle.fetch_sub(1, SeqCst) == 1;
            let Some(len) = received else { return };
            if nobody_waits && pool.threads.load(SeqCst) < MOST_THREADS {
                // Without one more thread things are slower, and go on.
                let _ = self.start(scope, pool, handler);
            }
            buffers.answer(device, len, handler, self);
            if pool.idle.fetch_add(1, SeqCst) >= MOST_IDLE_THREADS {
                pool.idle.fetch_sub(1, SeqCst);
                return;
            }
        }
    }
}

impl Transport for DevFuse {
    fn serve(&self, handler: &dyn Handler) -> io::Result<()> {
        let pool = Pool::default();
        thread::scope(|scope| self.start(scope, &pool, handler))
    }
}

impl Notify for DevFuse {
    fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let len = size_of::<OutHeader>() + body.len();
        let header = OutHeader { len: len as u32, error: code, unique: 0 };
        write(&self.device, &[header.as_bytes(), body].concat())?;
        Ok(())
    }
}

impl Buffers {
    fn new() -> Self {
        let len = MAX_IO_BYTES + HEADROOM_BYTES;
        Self { request: vec![0; len], reply: vec![0; len] }
    }

    /// Waits for a request and returns its length; `None` once the connection is at its end.
    fn receive(&mut self, device: impl AsFd) -> Option<usize> {
        loop {
            match retry_on_intr(|| read(&device, &mut *self.request)) {
                Ok(len) => return Some(len),
                // Whoever asked was interrupted before this could be read.
                Err(Errno::NOENT | Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
    }

    /// Serves the request of `len` bytes.
    fn answer(
        &mut self,
        device: impl AsFd,
        len: usize,
        handler: &dyn Handler,
        kernel: &dyn Notify,
    ) {
        let message = &self.request[..len];
        let Ok((InHeader { unique, .. }, _)) = InHeader::read_from_prefix(message) else { return };
        let (header, room) = self.reply.split_at_mut(size_of::<OutHeader>());
        let mut reply = Reply::new(room);
        let answer = match Request::parse(message) {
            Ok(request) => handler.handle(&request, &mut reply, kernel),
            Err(errno) => Answer::Error(errno),
        };
        let (error, body_len) = match answer {
            Answer::Reply => (0, reply.len()),
            Answer::Error(errno) => (-errno.raw_os_error(), 0),
            Answer::Nothing => return,
        };
        let len = header.len() + body_len;
        header.copy_from_slice(OutHeader { len: len as u32, error, unique }.as_bytes());
        // It fails when whoever asked was interrupted or the connection ended: nobody waits then.
        let _ = retry_on_intr(|| write(&device, &self.reply[..len]));
    }
}
