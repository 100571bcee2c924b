//! Requests and replies through reads and writes of `/dev/fuse`, which is where a connection
//! begins.
//!
//! # Invariants
//! - Each thread reads from a descriptor of its own and answers through the same: the kernel keeps
//!   pending requests by descriptor.
//! - As long as there may be more threads, one always waits for requests: it sleeps in a read, or
//!   [polls](super::busy_poll) first.
//! - A thread has one buffer for requests and one for replies, as long as it lives. A thread that
//!   ends leaves them to one that starts: under load threads come and go, and filling new buffers
//!   with zeros takes longer than a request.
//! - A request of a process that is being killed is answered early
//!   ([`in_progress`](super::in_progress)).
//! - Rings are offered to the kernel only once they and everything needed to serve them are there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use zerocopy::{FromBytes, IntoBytes};

use super::awake::Awake;
use super::away::{FromSlot, Slot};
use super::busy_poll::BusyPoll;
use super::in_progress::{InProgress, Place};
use super::io_uring::Queues;
use super::kernel::{Notify, Tell};
use super::mapping::Buffer;
use super::pool::Pool;
use super::readahead::read_ahead;
use super::readiness::Readiness;
use super::serving::{HEADROOM_BYTES, Handler, Limits, Served, Serving, Transport, serve};
use super::soon::Soon;
use crate::options::MountOptions;
use crate::protocol::abi::{self, InHeader, InitFlags, InitOut, OutHeader};
use crate::protocol::{Notice, Operation, Reply, Request};

/// The most threads that wait for requests; more end.
const MOST_IDLE_THREADS: usize = 4;
/// The most buffers that are kept for new threads; more are freed.
const MOST_SPARE_BUFFERS: usize = 16;
/// `FUSE_DEV_IOC_CLONE` of linux/fuse.h.
const FUSE_DEV_IOC_CLONE: Opcode = opcode::read::<u32>(229, 0);

/// A connection to the kernel.
#[derive(Debug)]
pub(crate) struct DevFuse {
    device: OwnedFd,
    limits: Limits,
    /// The rings that may carry most requests.
    queues: Option<Queues>,
    /// The rings have threads, which wait until INIT is answered.
    can_use_rings: AtomicBool,
    spare: Spare,
    soon: Soon,
    awake: Awake,
    in_progress: InProgress,
}

/// The buffers of threads that ended.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Buffers>>);

/// What a thread reads into and writes from.
#[derive(Debug)]
struct Buffers {
    request: Buffer,
    reply: Buffer,
}

impl DevFuse {
    /// A connection over `device`, an open `/dev/fuse`. With `io_uring`, requests come through
    /// rings where the kernel offers them. With `awake`, processors stay awake while requests keep
    /// coming.
    pub(crate) fn new(device: OwnedFd, options: &MountOptions, limits: Limits) -> Self {
        let queues = if options.io_uring { Queues::offered(limits) } else { None };
        let can_use_rings = AtomicBool::new(false);
        let (spare, soon, awake) = (Spare::default(), Soon::default(), Awake::new(options.awake));
        let in_progress = InProgress::default();
        Self { device, limits, queues, can_use_rings, spare, soon, awake, in_progress }
    }

    /// A further descriptor of the connection. If the device cannot be opened again, as for a user
    /// for whom `fusermount3` mounts, it shares the queue of the first.
    fn another(&self) -> io::Result<OwnedFd> {
        let options = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(another) = options else { return self.device.try_clone() };
        let mut first = self.device.as_raw_fd() as u32;
        // SAFETY: the request reads the number of a descriptor from 32 bits and writes nothing.
        unsafe { ioctl(&another, Updater::<FUSE_DEV_IOC_CLONE, u32>::new(&mut first)) }?;
        Ok(another.into())
    }

    fn start<'s>(&'s self, serving: Serving<'s, '_>, pool: &'s Pool) -> io::Result<()> {
        let device = Arc::new(self.another()?);
        let buffers = self.spare.take(self.limits)?;
        pool.begins();
        let serve = move || self.serve_one_by_one(&device, buffers, serving, pool);
        let started =
            thread::Builder::new().name("larder-fuse".into()).spawn_scoped(serving.scope, serve);
        started.map(|_| ()).inspect_err(|_| pool.ends())
    }

    /// Serves one request after another until the connection ends, or until there are threads
    /// enough.
    fn serve_one_by_one<'s>(
        &'s self,
        device: &Arc<OwnedFd>,
        mut buffers: Buffers,
        serving: Serving<'s, '_>,
        pool: &'s Pool,
    ) {
        let mut busy_poll = BusyPoll::new(Instant::now());
        let entered = self.in_progress.enter(device.clone());
        while let Some(len) = self.wait(&mut busy_poll, &mut buffers, device) {
            self.awake.count_request();
            if pool.takes() {
                // Without one more thread serving is slower, and goes on.
                let _ = self.start(serving, pool);
            }
            let start = || self.start(serving, pool);
            let slot = &InPool { pool, start: &start, place: &entered.place };
            let Serving { kernel, soon, .. } = serving;
            let kernel = FromSlot { kernel, soon, slot };
            if let Some(unique) = buffers.interrupted(len) {
                self.in_progress.interrupt(unique);
            }
            if buffers.has(abi::opcode::INIT, len) {
                self.agree(&mut buffers, device, len, serving, &kernel, &entered.place);
            } else {
                buffers.answer(device, len, serving.handler, &kernel, &entered.place);
            }
            if !pool.waits(MOST_IDLE_THREADS) {
                self.spare.leave(buffers);
                return;
            }
        }
        pool.ends();
        serving.readiness.ended();
    }

    /// Waits for a request and returns its length; `None` once the connection is at its end.
    fn wait(
        &self,
        busy_poll: &mut BusyPoll,
        buffers: &mut Buffers,
        device: &OwnedFd,
    ) -> Option<usize> {
        // With rings, no program waits for the requests that come this way.
        let has_rings = self.queues.as_ref().is_some_and(Queues::are_used);
        if busy_poll.begins(Instant::now()) && !has_rings {
            while !is_readable(device) && busy_poll.goes_on(Instant::now()) {
                thread::yield_now();
            }
        }
        let received = buffers.receive(device);
        busy_poll.ends(Instant::now());
        received
    }

    /// Answers INIT, and begins to use rings if both sides agree on them.
    fn agree<'s>(
        &'s self,
        buffers: &mut Buffers,
        device: &OwnedFd,
        len: usize,
        serving: Serving<'s, '_>,
        kernel: &dyn Tell,
        place: &Place,
    ) {
        if let Some(queues) = &self.queues {
            self.can_use_rings.store(queues.prepare(serving).is_ok(), SeqCst);
        }
        // Without readahead, reading is slower.
        let _ = read_ahead(device, self.limits.io_bytes);
        let body = buffers.answer(device, len, serving.handler, kernel, place);
        let Ok((agreed, _)) = InitOut::read_from_prefix(body) else {
            // No agreement: the kernel refuses everything that programs ask for.
            return serving.readiness.ended();
        };
        let has_rings = u64::from(agreed.flags2) << 32 & InitFlags::OVER_IO_URING.bits() != 0;
        if let Some(queues) = &self.queues {
            queues.agreed(has_rings);
        }
        if !has_rings {
            serving.readiness.reached();
        }
    }
}

impl Transport for DevFuse {
    fn serve(&self, handler: &dyn Handler, begun: impl FnOnce()) -> io::Result<()> {
        let (pool, readiness) = (Pool::new(self.limits.threads), Readiness::default());
        let serve = || {
            thread::scope(|scope| {
                let Self { device, soon, awake, in_progress, .. } = self;
                let (kernel, readiness) = (self, &readiness);
                let serving =
                    Serving { scope, device, handler, kernel, soon, awake, readiness, in_progress };
                self.start(serving, &pool)?;
                if readiness.wait() {
                    begun();
                }
                Ok(())
            })
        };
        let serve = || self.awake.during(serve);
        self.soon.during(self, || self.in_progress.during(serve))
    }
}

impl Notify for DevFuse {
    fn notify(&self, notice: &Notice) -> io::Result<()> {
        write(&self.device, notice.as_bytes())?;
        Ok(())
    }

    fn features(&self) -> InitFlags {
        let can_use_rings = self.can_use_rings.load(SeqCst);
        if can_use_rings { InitFlags::OVER_IO_URING } else { InitFlags::empty() }
    }
}

/// The slot of a thread of `pool`. Another thread serves while this one waits for the kernel, so
/// that any number of them can wait.
struct InPool<'p> {
    pool: &'p Pool,
    /// Starts another thread of the pool.
    start: &'p (dyn Fn() -> io::Result<()> + Sync),
    place: &'p Place,
}

impl Slot for InPool<'_> {
    fn leave(&self) -> bool {
        let may_leave = !self.pool.goes_away() || (self.start)().is_ok();
        if !may_leave {
            self.pool.comes_back();
        }
        may_leave
    }

    fn come_back(&self) {
        self.pool.comes_back();
    }

    fn caller_waits(&self) -> bool {
        self.place.caller_waits()
    }
}

/// Whether a read returns at once.
fn is_readable(device: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // If the poll fails, the read says what is wrong.
    poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&now)) != Ok(0)
}

impl Spare {
    /// Buffers for a new thread: those that were left last, if there are any.
    fn take(&self, limits: Limits) -> Result<Buffers, Errno> {
        let left = self.0.lock().pop();
        left.map_or_else(|| Buffers::new(limits), Ok)
    }

    /// Keeps the buffers of a thread that ends, unless enough are kept already.
    fn leave(&self, buffers: Buffers) {
        let mut spare = self.0.lock();
        if spare.len() < MOST_SPARE_BUFFERS {
            spare.push(buffers);
        }
    }
}

impl Buffers {
    fn new(limits: Limits) -> Result<Self, Errno> {
        let len = limits.io_bytes + HEADROOM_BYTES;
        Ok(Self { request: Buffer::new(len)?, reply: Buffer::new(len)? })
    }

    /// Waits for a request and returns its length; `None` once the connection is at its end.
    fn receive(&mut self, device: impl AsFd) -> Option<usize> {
        loop {
            match retry_on_intr(|| read(&device, self.request.bytes_mut())) {
                Ok(len) => return Some(len),
                // The caller was interrupted before the request could be read.
                Err(Errno::NOENT | Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether the request of `len` bytes is of the kind `opcode`.
    fn has(&self, opcode: u32, len: usize) -> bool {
        InHeader::read_from_prefix(&self.request.bytes()[..len])
            .is_ok_and(|(it, _)| it.opcode == opcode)
    }

    /// The number of the request that the one of `len` bytes interrupts, if it does that.
    fn interrupted(&self, len: usize) -> Option<u64> {
        if !self.has(abi::opcode::INTERRUPT, len) {
            return None;
        }
        let request = Request::parse(&self.request.bytes()[..len]).ok()?;
        match Operation::of(&request) {
            Ok(Operation::Interrupt { unique }) => Some(unique),
            _ => None,
        }
    }

    /// Serves the request of `len` bytes, and returns the body of the reply.
    fn answer(
        &mut self,
        device: impl AsFd,
        len: usize,
        handler: &dyn Handler,
        kernel: &dyn Tell,
        place: &Place,
    ) -> &[u8] {
        let message = &self.request.bytes()[..len];
        let Ok((InHeader { unique, pid, .. }, _)) = InHeader::read_from_prefix(message) else {
            return &[];
        };
        place.begins(unique, pid);
        let (header, room) = self.reply.bytes_mut().split_at_mut(size_of::<OutHeader>());
        let mut reply = Reply::new(room);
        let served = serve(Request::parse(message), &mut reply, handler, kernel);
        place.ends();
        let Some(served) = served else { return &[] };
        let Served { error, body_len } = served;
        let len = header.len() + body_len;
        header.copy_from_slice(OutHeader { len: len as u32, error, unique }.as_bytes());
        let written = retry_on_intr(|| write(&device, &self.reply.bytes()[..len]));
        let body = &self.reply.bytes()[size_of::<OutHeader>()..len];
        // No program waits: it was killed, or the connection has ended.
        if written == Err(Errno::NOENT)
            && let Ok(request) = Request::parse(message)
        {
            handler.unheard(&request, body, kernel);
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_threads_take_the_buffers_of_old_ones() {
        let spare = Spare::default();
        let limits = Limits { io_bytes: 1 << 16, threads: 1 };
        let take =
            || (0..=MOST_SPARE_BUFFERS).map(|_| spare.take(limits).unwrap()).collect::<Vec<_>>();
        let places = |buffers: &[Buffers]| {
            let place = |it: &Buffers| (it.request.bytes().as_ptr(), it.reply.bytes().as_ptr());
            buffers.iter().map(place).collect::<Vec<_>>()
        };
        let mut taken = take();
        let first = places(&taken);
        let one_too_many = taken.pop().unwrap();
        taken.into_iter().rev().for_each(|buffers| spare.leave(buffers));
        spare.leave(one_too_many);
        assert_eq!(spare.0.lock().len(), MOST_SPARE_BUFFERS);
        let again = take();
        assert_eq!(places(&again)[..MOST_SPARE_BUFFERS], first[..MOST_SPARE_BUFFERS]);
        let len = limits.io_bytes + HEADROOM_BYTES;
        assert!(
            again
                .iter()
                .all(|it| [&it.request, &it.reply].iter().all(|it| it.bytes().len() == len))
        );
    }
}
