//! Requests to the kernel for which no library has safe functions.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::Result;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

const BTRFS_IOCTL_MAGIC: u8 = 0x94;

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source_fd: i64,
    source_offset: u64,
    source_len_bytes: u64,
    target_offset: u64,
}

/// `struct file_dedupe_range` with room for one `struct file_dedupe_range_info`.
#[repr(C)]
struct DedupeRange {
    source_offset: u64,
    source_len_bytes: u64,
    target_count: u16,
    reserved1: u16,
    reserved2: u32,
    target_fd: i64,
    target_offset: u64,
    deduped_len_bytes: u64,
    status: i32,
    reserved: u32,
}

/// `struct btrfs_ioctl_quota_ctl_args`.
#[repr(C)]
struct QuotaControl {
    command: u64,
    status: u64,
}

const CLONE_RANGE: Opcode = opcode::write::<CloneRange>(BTRFS_IOCTL_MAGIC, 13);
// The number counts the header alone: 24 bytes, the size of three words.
const DEDUPE_RANGE: Opcode = opcode::read_write::<[u64; 3]>(BTRFS_IOCTL_MAGIC, 54);
const QUOTA_CONTROL: Opcode = opcode::read_write::<QuotaControl>(BTRFS_IOCTL_MAGIC, 40);
const QUOTA_ENABLE_SIMPLE: u64 = 4;

/// `FICLONERANGE`: makes a range of `target` share the extents of a range of `source`.
///
/// # Errors
/// The kernel's error.
pub fn clone_range(
    target: &File,
    target_offset: u64,
    source: &File,
    source_offset: u64,
    len_bytes: u64,
) -> Result<()> {
    let argument = CloneRange {
        source_fd: descriptor(source),
        source_offset,
        source_len_bytes: len_bytes,
        target_offset,
    };
    // SAFETY: `CloneRange` has the layout that this request reads, and holds no pointers.
    unsafe { ioctl(target, Setter::<CLONE_RANGE, _>::new(argument)) }
}

/// `FIDEDUPERANGE`: as [`clone_range`], if the kernel finds the bytes equal. Returns the bytes
/// shared.
///
/// # Errors
/// The kernel's error.
pub fn dedupe_range(
    target: &File,
    target_offset: u64,
    source: &File,
    source_offset: u64,
    len_bytes: u64,
) -> Result<u64> {
    let mut argument = DedupeRange {
        source_offset,
        source_len_bytes: len_bytes,
        target_count: 1,
        reserved1: 0,
        reserved2: 0,
        target_fd: descriptor(target),
        target_offset,
        deduped_len_bytes: 0,
        status: 0,
        reserved: 0,
    };
    // SAFETY: `DedupeRange` has the layout that this request reads and writes for the one target
    // that `target_count` announces, and holds no pointers.
    unsafe { ioctl(source, Updater::<DEDUPE_RANGE, _>::new(&mut argument)) }?;
    if argument.status < 0 {
        return Err(rustix::io::Errno::from_raw_os_error(-argument.status));
    }
    Ok(argument.deduped_len_bytes)
}

/// `BTRFS_IOC_QUOTA_CTL`: switches simple quotas on for the file system that `file` lies on.
pub(crate) fn enable_simple_quotas(file: &File) -> Result<()> {
    let mut argument = QuotaControl { command: QUOTA_ENABLE_SIMPLE, status: 0 };
    // SAFETY: `QuotaControl` has the layout that this request reads and writes, and no pointers.
    unsafe { ioctl(file, Updater::<QUOTA_CONTROL, _>::new(&mut argument)) }
}

fn descriptor(file: &File) -> i64 {
    let fd: RawFd = file.as_raw_fd();
    i64::from(fd)
}
