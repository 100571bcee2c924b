//! Sending snapshots.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::ioctl::{Setter, ioctl};

use crate::abi::SEND;
use crate::invalid::invalid;

/// `struct btrfs_ioctl_send_args`.
#[repr(C)]
struct SendArgs {
    send_fd: i64,
    clone_sources_count: u64,
    clone_sources: *const u64,
    parent_root: u64,
    flags: u64,
    version: u32,
    reserved: [u8; 28],
}

const _: () = assert!(size_of::<SendArgs>() == 72);

/// `BTRFS_SEND_FLAG_*`.
const NO_FILE_DATA: u64 = 0x1;
const OMIT_STREAM_HEADER: u64 = 0x2;
const OMIT_END_CMD: u64 = 0x4;
const VERSION: u64 = 0x8;
const COMPRESSED: u64 = 0x10;

/// The options of the kernel's send.
#[derive(Clone, Copy, Debug)]
pub struct KernelSend<'a> {
    /// Version of the stream.
    pub version: u32,
    /// Id of the parent, for an increment.
    pub parent: Option<u64>,
    /// Ids of all clone sources.
    pub clone_sources: &'a [u64],
    /// Send compressed data as it is stored.
    pub compressed_data: bool,
    /// Send no data.
    pub no_data: bool,
    /// A stream begins with this snapshot.
    pub begins_stream: bool,
    /// The stream ends with this snapshot.
    pub ends_stream: bool,
}

/// Makes the kernel send the snapshot whose root is `snapshot` to `output`, most often a pipe.
/// Returns when all is written.
pub fn send(snapshot: impl AsFd, send: &KernelSend<'_>, output: BorrowedFd<'_>) -> io::Result<()> {
    let flags = [
        (send.no_data, NO_FILE_DATA),
        (!send.begins_stream, OMIT_STREAM_HEADER),
        (!send.ends_stream, OMIT_END_CMD),
        // Older kernels have only version 1, and no field for the version.
        (send.version != 1, VERSION),
        (send.compressed_data, COMPRESSED),
    ];
    let argument = SendArgs {
        send_fd: i64::from(output.as_raw_fd()),
        clone_sources_count: send.clone_sources.len() as u64,
        clone_sources: send.clone_sources.as_ptr(),
        parent_root: send.parent.unwrap_or(0),
        flags: flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag),
        version: if send.version == 1 { 0 } else { send.version },
        reserved: [0; 28],
    };
    // SAFETY: `SendArgs` has the layout that this request reads; its pointer and count describe a
    // slice that is borrowed until the call has returned, and which is only read.
    Ok(unsafe { ioctl(snapshot, Setter::<SEND, _>::new(argument)) }?)
}

/// The newest version of the stream that the kernel sends.
pub fn newest_stream_version() -> io::Result<u32> {
    let text = std::fs::read_to_string("/sys/fs/btrfs/features/send_stream_version")?;
    text.trim().parse().map_err(|_| invalid("the version of the stream"))
}
