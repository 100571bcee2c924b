//! The requests to block devices that no safe interface covers.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

use rustix::io::Result;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

use super::Identity;

/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `LOOP_CONFIGURE` of linux/loop.h.
const LOOP_CONFIGURE: Opcode = 0x4C0A;
/// `LOOP_CTL_GET_FREE` of linux/loop.h.
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
/// `LO_FLAGS_AUTOCLEAR` of linux/loop.h.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `BLKDISCARD` of linux/fs.h.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Length of a loop device's name (`LO_NAME_SIZE`).
pub(crate) const LOOP_NAME_BYTES: usize = 64;

/// `struct loop_info64` of linux/loop.h.
#[derive(Default)]
#[repr(C)]
struct LoopInfo64 {
    lo_device: u64,
    lo_inode: u64,
    lo_rdevice: u64,
    lo_offset: u64,
    lo_sizelimit: u64,
    lo_number: u32,
    lo_encrypt_type: u32,
    lo_encrypt_key_size: u32,
    lo_flags: u32,
    lo_file_name: LoopName,
    lo_crypt_name: [u64; 8],
    lo_encrypt_key: [u64; 4],
    lo_init: [u64; 2],
}

/// The name of a loop device, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopName(pub(crate) [u8; LOOP_NAME_BYTES]);

impl Default for LoopName {
    fn default() -> Self {
        Self([0; LOOP_NAME_BYTES])
    }
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// The file that a loop device is attached to, and the name of the loop device.
pub(crate) fn loop_status(loop_device: &File) -> Result<(Identity, LoopName)> {
    // SAFETY: the request fills a `struct loop_info64`, which `LoopInfo64` matches in layout and in
    // its size of 232 bytes; every bit pattern is valid for its fields.
    let info: LoopInfo64 =
        unsafe { ioctl(loop_device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
    let identity = match info.lo_rdevice {
        0 => Identity::Regular { dev: info.lo_device, inode: info.lo_inode },
        rdev => Identity::Block { rdev },
    };
    Ok((identity, info.lo_file_name))
}

/// Attaches a loop device to `backing` under `name`, until no process has the loop device open any
/// more.
///
/// # Errors
/// `EBUSY` if it is attached already.
pub(crate) fn attach_loop(loop_device: &File, backing: &File, name: LoopName) -> Result<()> {
    let fd = backing.as_raw_fd() as u32;
    let (lo_flags, lo_file_name) = (LO_FLAGS_AUTOCLEAR, name);
    let info = LoopInfo64 { lo_flags, lo_file_name, ..LoopInfo64::default() };
    let config = LoopConfig { fd, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: the request reads a `struct loop_config`, which `LoopConfig` matches in layout and in
    // its size of 304 bytes.
    unsafe { ioctl(loop_device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// The number of a free loop device, from `/dev/loop-control`.
pub(crate) fn free_loop(control: &File) -> Result<u32> {
    // SAFETY: the request takes no argument, and the call returns its answer.
    unsafe { ioctl(control, GetFree) }
}

struct GetFree;

// SAFETY: the request has no memory to read or write.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> Result<u32> {
        Ok(number as u32)
    }
}

/// Discards a range of a block device. The range is in whole sectors, or the kernel refuses it.
pub(crate) fn discard_blocks(block_device: &File, offset: u64, len_bytes: u64) -> Result<()> {
    // SAFETY: the request reads two 64-bit numbers, offset and length in bytes.
    unsafe { ioctl(block_device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len_bytes])) }
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 304);
