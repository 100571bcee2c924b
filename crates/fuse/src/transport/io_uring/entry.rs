//! An entry of a queue: where the kernel puts one request, and takes the reply from.
//!
//! # Invariants
//! - As long as an entry is [`Given`], the kernel owns its header and payload, and nothing here
//!   refers to them; at all other times the kernel does not touch them.
//! - An entry that was never used takes no memory: its pages are first touched by its first
//!   request.
//! - If it is unknown whether the kernel is done with the memory, the memory is leaked.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::slice;

use rustix::io::Errno;
use rustix::io_uring::iovec;
use zerocopy::{FromZeros, IntoBytes};

use super::super::kernel::Tell;
use super::super::mapping::Mapping;
use super::super::serving::{Handler, Served, serve};
use super::handed_over::{Copied, may_take_long};
use super::ring::{Command, Ring};
use crate::protocol::abi::{
    OutHeader, URING_CMD_COMMIT_AND_FETCH, URING_CMD_REGISTER, UringCmdReq, UringReqHeader, opcode,
};
use crate::protocol::{Reply, Request};

/// Where the payload begins: on a page of its own, after the header.
const PAYLOAD_AT: usize = 4096;
/// The most that a request other than WRITE has besides its fixed parts: the value of an attribute,
/// and names.
const MOST_BESIDE_BYTES: usize = (64 << 10) + 4096;

/// An entry that has no request.
#[derive(Debug)]
pub(super) struct Idle {
    /// The header, the payload, and room for the part of a request that the reply would overwrite.
    memory: Mapping,
    payload_len: usize,
    ring: Ring,
    next: Next,
}

/// How the kernel is told to fill the entry.
#[derive(Clone, Copy, Debug)]
enum Next {
    Register,
    /// There is a reply to the request with this number.
    Commit(u64),
}

/// An entry that the kernel has, or has given a request.
#[derive(Debug)]
pub(super) struct Given(Idle);

/// An entry that has a request.
#[derive(Debug)]
pub(super) struct Taken(Idle);

impl Idle {
    /// An entry of no queue, with room for `payload_len` bytes of a request or reply.
    /// [`enable`](Self::enable) comes next.
    pub(super) fn new(payload_len: usize) -> Result<Self, Errno> {
        let ring = Ring::new()?;
        let memory = Mapping::anonymous(PAYLOAD_AT + payload_len + MOST_BESIDE_BYTES)?;
        Ok(Self { memory, payload_len, ring, next: Next::Register })
    }

    /// Makes this thread the user of the entry.
    pub(super) fn enable(&self) -> Result<(), Errno> {
        self.ring.enable()
    }

    /// Gives the entry to `queue` of the connection `device`: at once the first time, and later
    /// with the reply, when this thread [waits](Given::wait).
    ///
    /// # Errors
    /// The kernel's: it does not take the entry.
    pub(super) fn give(mut self, device: BorrowedFd<'_>, queue: u16) -> Result<Given, Errno> {
        let command = |cmd_op, parts, commit_id| {
            let request = UringCmdReq { commit_id, qid: queue, ..UringCmdReq::new_zeroed() };
            Command::new(device.as_fd().as_raw_fd(), cmd_op, parts, request)
        };
        let start = self.memory.start();
        // SAFETY: the payload lies in the mapping.
        let payload = unsafe { start.byte_add(PAYLOAD_AT) };
        let parts = [
            iovec { iov_base: start.as_ptr().cast(), iov_len: size_of::<UringReqHeader>() },
            iovec { iov_base: payload.as_ptr().cast(), iov_len: self.payload_len },
        ];
        // SAFETY: the kernel reads `parts` before it returns from taking the first command. Until a
        // command is completed, it reads and writes the memory that they name. That memory is this
        // entry's, and a `Given` does not refer to it.
        let taken = unsafe {
            match self.next {
                Next::Register => {
                    let parts = (parts.as_ptr() as u64, parts.len() as u32);
                    self.ring.put(command(URING_CMD_REGISTER, parts, 0));
                    self.ring.submit()
                }
                Next::Commit(id) => {
                    self.ring.put(command(URING_CMD_COMMIT_AND_FETCH, (0, 0), id));
                    Ok(())
                }
            }
        };
        match taken {
            Ok(()) => Ok(Given(self)),
            Err(errno) => {
                mem::forget(self.memory);
                Err(errno)
            }
        }
    }

    fn memory(&mut self) -> (&mut UringReqHeader, &mut [u8], &mut [u8]) {
        let start = self.memory.start();
        // SAFETY: the mapping is long enough, each part begins at a page boundary, and all bytes
        // are initialized and valid for their types. The parts do not overlap. They are borrowed
        // with the entry, which the kernel does not have while it can be borrowed.
        unsafe {
            let header = start.cast::<UringReqHeader>().as_mut();
            let payload = start.byte_add(PAYLOAD_AT).as_ptr();
            let beside = start.byte_add(PAYLOAD_AT + self.payload_len).as_ptr();
            let payload = slice::from_raw_parts_mut(payload, self.payload_len);
            (header, payload, slice::from_raw_parts_mut(beside, MOST_BESIDE_BYTES))
        }
    }
}

impl Given {
    /// Gives the kernel the reply, if there is one. Returns true if the entry then waits, and
    /// nothing waits in its queue. If it returns false, something may wait or not.
    pub(super) fn is_waiting(&mut self) -> bool {
        self.0.ring.submit().is_ok() && !self.0.ring.is_completed()
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// `ENOTCONN` or `ECONNABORTED` once the connection is at its end.
    pub(super) fn wait(mut self) -> Result<Taken, Errno> {
        match self.0.ring.wait() {
            Ok(Ok(())) => Ok(Taken(self.0)),
            Ok(Err(errno)) => Err(errno),
            Err(errno) => {
                mem::forget(self.0.memory);
                Err(errno)
            }
        }
    }
}

impl Taken {
    /// Serves the request, and leaves the reply for the kernel, which takes it with the next
    /// [`give`](Idle::give).
    pub(super) fn answer(mut self, handler: &dyn Handler, kernel: &dyn Tell) -> Idle {
        let (parts, payload, beside) = self.0.memory();
        let served = answer(parts, payload, beside, handler, kernel);
        self.with(&served)
    }

    /// A copy of the request, if it may take long.
    pub(super) fn copy_if_long(&mut self) -> Option<Copied> {
        let (parts, payload, _) = self.0.memory();
        let header = parts.in_header();
        let len = parts.ring_ent_in_out.payload_sz as usize;
        let payload = payload.get(..len).filter(|_| may_take_long(header.opcode))?.to_vec();
        Some(Copied { header, op_in: parts.op_in, payload, room_bytes: self.0.payload_len })
    }

    /// Leaves an answer for the kernel that was made elsewhere.
    pub(super) fn answer_with(mut self, served: &Served, body: &[u8]) -> Idle {
        let (_, payload, _) = self.0.memory();
        payload[..body.len()].copy_from_slice(body);
        self.with(served)
    }

    /// Leaves an answer for the kernel, whose body lies in the payload.
    fn with(mut self, &Served { error, body_len }: &Served) -> Idle {
        let (parts, _, _) = self.0.memory();
        let unique = parts.in_header().unique;
        let len = (size_of::<OutHeader>() + body_len) as u32;
        let header = OutHeader { len, error, unique };
        parts.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        parts.ring_ent_in_out.payload_sz = body_len as u32;
        self.0.next = Next::Commit(parts.ring_ent_in_out.commit_id);
        self.0
    }
}

/// Serves the request in `parts` and `payload`, and leaves the body of the reply in `payload`.
///
/// The data of a WRITE stays in place, and its short reply is made beside it. All other requests
/// are short and make room for the reply.
fn answer(
    parts: &UringReqHeader,
    payload: &mut [u8],
    beside: &mut [u8],
    handler: &dyn Handler,
    kernel: &dyn Tell,
) -> Served {
    let header = parts.in_header();
    let len = parts.ring_ent_in_out.payload_sz as usize;
    let request = |payload| Request::of_parts(header, &parts.op_in, payload);
    // Requests without a reply do not come this way.
    let nothing = Served { error: 0, body_len: 0 };
    if header.opcode == opcode::WRITE {
        let request = payload.get(..len).ok_or(Errno::INVAL).and_then(request);
        let served = serve(request, &mut Reply::new(beside), handler, kernel).unwrap_or(nothing);
        payload[..served.body_len].copy_from_slice(&beside[..served.body_len]);
        return served;
    }
    let moved = match (beside.get_mut(..len), payload.get(..len)) {
        (Some(room), Some(brought)) => {
            room.copy_from_slice(brought);
            Ok(&*room)
        }
        _ => Err(Errno::INVAL),
    };
    let served = serve(moved.and_then(request), &mut Reply::new(payload), handler, kernel);
    served.unwrap_or(nothing)
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel::MustNotWait;
    use super::*;
    use crate::protocol::abi::InHeader;
    use crate::protocol::{Answer, Notice};

    const MAX_IO_BYTES: usize = 1 << 20;

    /// Replies with the request's payload, twice.
    struct Echo;

    impl Handler for Echo {
        fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, _: &dyn Tell) -> Answer {
            let put = (0..2).try_for_each(|_| reply.put_bytes(request.payload()));
            put.map_or_else(Answer::Error, |()| Answer::Reply)
        }
    }

    impl Tell for Echo {
        fn now(&self, _: &Notice) -> Result<(), MustNotWait> {
            Ok(())
        }

        fn soon(&self, _: Notice) {}
    }

    /// The answer to a request of the kind `opcode` with `payload`, whose header says `len` bytes.
    fn served(opcode: u32, payload: &[u8], len: u32) -> Result<Vec<u8>, i32> {
        let mut parts = UringReqHeader::new_zeroed();
        let header = InHeader { len: u32::MAX, opcode, ..InHeader::new_zeroed() };
        parts.in_out[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        parts.ring_ent_in_out.payload_sz = len;
        let (mut room, mut beside) = (vec![0; MAX_IO_BYTES], vec![0; MOST_BESIDE_BYTES]);
        room[..payload.len()].copy_from_slice(payload);
        let Served { error, body_len } = answer(&parts, &mut room, &mut beside, &Echo, &Echo);
        room.truncate(body_len);
        if error == 0 { Ok(room) } else { Err(error) }
    }

    #[test]
    fn a_reply_takes_the_place_of_its_request() {
        assert_eq!(served(opcode::LOOKUP, b"name", 4).unwrap(), b"namename");
        assert_eq!(served(opcode::WRITE, b"data", 4).unwrap(), b"datadata");
        let long = vec![7; MOST_BESIDE_BYTES];
        let reply = served(opcode::SETXATTR, &long, long.len() as u32).unwrap();
        assert_eq!(reply, [long.clone(), long].concat());
    }

    #[test]
    fn requests_longer_than_possible_are_refused() {
        let too_long = -Errno::INVAL.raw_os_error();
        let beside = MOST_BESIDE_BYTES as u32;
        for (opcode, len) in [
            (opcode::LOOKUP, beside + 1),
            (opcode::LOOKUP, u32::MAX),
            (opcode::WRITE, MAX_IO_BYTES as u32 + 1),
            (opcode::WRITE, u32::MAX),
        ] {
            assert_eq!(served(opcode, b"", len).unwrap_err(), too_long, "{opcode} {len}");
        }
        // The reply to a WRITE has only the room beside it.
        let no_room = -Errno::OVERFLOW.raw_os_error();
        assert_eq!(served(opcode::WRITE, b"", beside).unwrap_err(), no_room);
    }
}
