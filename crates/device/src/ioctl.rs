//! The two requests to block devices that no safe interface covers.

use std::fs::File;

use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

use crate::usage::Identity;

/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `BLKDISCARD` of linux/fs.h.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo64 {
    lo_device: u64,
    lo_inode: u64,
    lo_rdevice: u64,
    _rest: [u64; 26],
}

/// What a loop device is attached to.
pub(crate) fn loop_backing_file(loop_device: &File) -> Result<Identity> {
    // SAFETY: the request fills a `struct loop_info64`, which `LoopInfo64` matches in layout and in
    // its size of 232 bytes; every bit pattern is valid for its fields.
    let info: LoopInfo64 =
        unsafe { ioctl(loop_device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
    Ok(match info.lo_rdevice {
        0 => Identity::Regular { dev: info.lo_device, inode: info.lo_inode },
        rdev => Identity::Block { rdev },
    })
}

/// Discards a range of a block device. The range is in whole sectors, or the kernel refuses it.
pub(crate) fn discard_blocks(block_device: &File, offset: u64, len_bytes: u64) -> Result<()> {
    // SAFETY: the request reads two 64-bit numbers, offset and length in bytes.
    unsafe { ioctl(block_device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len_bytes])) }
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);
