//! A ring of io_uring that carries one command at a time.
//!
//! # Invariants
//! - There is room for one submission: a command is in the kernel, or none is. The thread waits
//!   until one is completed before it submits the next.
//! - Only the thread that enables a ring uses it. The kernel completes commands in that thread
//!   while it waits.

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringRegisterOp, IoringSetupFlags, io_uring_cqe, io_uring_enter, io_uring_params,
    io_uring_register, io_uring_setup,
};
use zerocopy::{Immutable, IntoBytes};

use super::super::mapping::Mapping;
use crate::protocol::abi::UringCmdReq;

/// How rings are set up: commands of 128 bytes, one thread, which completes them while it waits,
/// nothing to reorder.
const SETUP: IoringSetupFlags = IoringSetupFlags::SQE128
    .union(IoringSetupFlags::SINGLE_ISSUER)
    .union(IoringSetupFlags::DEFER_TASKRUN)
    .union(IoringSetupFlags::NO_SQARRAY)
    .union(IoringSetupFlags::R_DISABLED);

/// `struct io_uring_sqe` of 128 bytes, for `IORING_OP_URING_CMD`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Command {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    cmd_op: u32,
    pad1: u32,
    addr: u64,
    len: u32,
    uring_cmd_flags: u32,
    user_data: u64,
    buf_index: u16,
    personality: u16,
    file_index: u32,
    request: UringCmdReq,
    unused: [u8; 56],
}
const _: () = assert!(size_of::<Command>() == 128);

impl Command {
    /// The command `cmd_op` to the open file `fd`, with `len` structures at `addr`.
    pub(super) fn new(fd: i32, cmd_op: u32, (addr, len): (u64, u32), request: UringCmdReq) -> Self {
        Self {
            opcode: IoringOp::UringCmd as u8,
            flags: 0,
            ioprio: 0,
            fd,
            cmd_op,
            pad1: 0,
            addr,
            len,
            uring_cmd_flags: 0,
            user_data: 0,
            buf_index: 0,
            personality: 0,
            file_index: 0,
            request,
            unused: [0; 56],
        }
    }
}

/// A ring.
#[derive(Debug)]
pub(super) struct Ring {
    rings: Mapping,
    commands: Mapping,
    offsets: Offsets,
    fd: OwnedFd,
}

/// Offsets of the parts of the rings, in bytes.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    submitted: u32,
    taken: u32,
    completed: u32,
    seen: u32,
    completions_mask: u32,
    completions: u32,
}

impl Ring {
    /// A ring, which is yet to be enabled by the thread that will use it.
    ///
    /// # Errors
    /// `ENOSYS` and `EPERM` if io_uring is missing or not allowed, `EINVAL` if the kernel is older
    /// than Linux 6.6.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut params = io_uring_params::default();
        params.flags = SETUP;
        // SAFETY: the parameters ask for nothing that refers to memory.
        let fd = unsafe { io_uring_setup(1, &mut params) }?;
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let offsets = Offsets {
            submitted: params.sq_off.tail,
            taken: params.sq_off.head,
            completed: params.cq_off.tail,
            seen: params.cq_off.head,
            completions_mask: params.cq_off.ring_mask,
            completions: params.cq_off.cqes,
        };
        let completions_len = params.cq_entries as usize * size_of::<io_uring_cqe>();
        let rings_len = offsets.completions as usize + completions_len;
        let commands_len = params.sq_entries as usize * size_of::<Command>();
        let rings = Mapping::of_ring(&fd, IORING_OFF_SQ_RING, rings_len)?;
        let commands = Mapping::of_ring(&fd, IORING_OFF_SQES, commands_len)?;
        Ok(Self { rings, commands, offsets, fd })
    }

    /// Makes this thread the user of the ring.
    pub(super) fn enable(&self) -> Result<(), Errno> {
        let operation = IoringRegisterOp::RegisterEnableRings;
        // SAFETY: the operation takes no argument.
        unsafe { io_uring_register(&self.fd, operation, ptr::null(), 0) }.map(|_| ())
    }

    /// Leaves `command` for the kernel, which takes it at the next call.
    ///
    /// # Safety
    /// Until the command is completed, the memory that this command or an earlier one names must be
    /// free for whatever the kernel does with it on this command.
    pub(super) unsafe fn put(&mut self, command: Command) {
        // SAFETY: the ring has room for one command, and the one before is completed: the kernel
        // does not look at it now.
        unsafe { self.commands.start().cast::<Command>().write(command) };
        let tail = self.word(self.offsets.submitted);
        tail.store(tail.load(Relaxed).wrapping_add(1), Release);
    }

    /// Makes the kernel take the command if it has not, and do the work that is due by now.
    ///
    /// # Errors
    /// The kernel's: it does not take the command.
    pub(super) fn submit(&mut self) -> Result<(), Errno> {
        loop {
            self.enter(0)?;
            if self.left() == 0 {
                return Ok(());
            }
        }
    }

    /// Makes the kernel take the command if it has not, waits until it is completed, and returns
    /// its result.
    ///
    /// # Errors
    /// The kernel's: this thread cannot wait. The kernel may have the command then for as long as
    /// the process lives.
    pub(super) fn wait(&mut self) -> Result<Result<(), Errno>, Errno> {
        loop {
            self.enter(1)?;
            if let Some(result) = self.completed() {
                return Ok(if result < 0 {
                    Err(Errno::from_raw_os_error(-result))
                } else {
                    Ok(())
                });
            }
        }
    }

    /// Makes the kernel take the command, if one is left, and waits until `completions` are there,
    /// or returns early with an error.
    fn enter(&self, completions: u32) -> Result<(), Errno> {
        // SAFETY: the caller of `put` answered for the memory that the command names.
        match unsafe {
            io_uring_enter(&self.fd, self.left(), completions, IoringEnterFlags::GETEVENTS)
        } {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// How many commands the kernel has not taken.
    fn left(&self) -> u32 {
        let submitted = self.word(self.offsets.submitted).load(Relaxed);
        submitted.wrapping_sub(self.word(self.offsets.taken).load(Acquire))
    }

    /// Whether the command is completed.
    pub(super) fn is_completed(&self) -> bool {
        let Offsets { completed, seen, .. } = self.offsets;
        self.word(seen).load(Relaxed) != self.word(completed).load(Acquire)
    }

    /// The result of the command, if it is completed.
    fn completed(&mut self) -> Option<i32> {
        if !self.is_completed() {
            return None;
        }
        let Offsets { seen, completions_mask, completions, .. } = self.offsets;
        let at = self.word(seen).load(Relaxed);
        let number = at & self.word(completions_mask).load(Relaxed);
        let offset = completions as usize + number as usize * size_of::<io_uring_cqe>();
        // SAFETY: the entry lies in the mapping, whose length was computed from the number of
        // entries, and the kernel does not write to it before it was seen.
        let result = unsafe {
            let entry = self.rings.start().byte_add(offset).cast::<io_uring_cqe>().as_ptr();
            (&raw const (*entry).res).read()
        };
        self.word(seen).store(at.wrapping_add(1), Release);
        Some(result)
    }

    /// A word of the rings that is shared with the kernel.
    fn word(&self, offset: u32) -> &AtomicU32 {
        debug_assert!(offset as usize + size_of::<u32>() <= self.rings.len());
        // SAFETY: the kernel gave the offset, of an aligned word in the mapping, which lives as
        // long as this ring, and both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.rings.start().byte_add(offset as usize).cast().as_ptr()) }
    }
}
