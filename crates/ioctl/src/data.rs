//! Sharing extents and writing them as they are stored.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{copy_file_range, fstat};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

use crate::abi::{CLONE_RANGE, CloneRange, ENCODED_WRITE, structure_bytes};
use crate::call;

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    base: *const u8,
    len_bytes: usize,
}

/// `struct btrfs_ioctl_encoded_io_args`.
#[repr(C)]
struct EncodedArgs {
    iov: *const IoVec,
    iovcnt: usize,
    offset: i64,
    flags: u64,
    len: u64,
    unencoded_len: u64,
    unencoded_offset: u64,
    compression: u32,
    encryption: u32,
    reserved: [u8; 64],
}

const _: () = assert!(size_of::<EncodedArgs>() == structure_bytes(ENCODED_WRITE));

/// `FICLONERANGE`: makes a range of `target` share the extents of a range of `source`, in bytes.
pub fn clone_range(
    target: impl AsFd,
    target_offset: u64,
    source: impl AsFd,
    source_offset: u64,
    len_bytes: u64,
) -> io::Result<()> {
    let args = CloneRange {
        source_fd: i64::from(source.as_fd().as_raw_fd()),
        source_offset,
        source_len_bytes: len_bytes,
        target_offset,
    };
    call::write::<CLONE_RANGE, _>(target, args)
}

/// Makes an empty file share all data of another.
pub fn clone_file(target: impl AsFd, source: impl AsFd) -> io::Result<()> {
    if call::is_kernel_btrfs(&target)? {
        return clone_range(target, 0, source, 0, 0);
    }
    // On a Larder mount, copying shares the extents; elsewhere it would copy them.
    crate::subvolume_id(&target)?;
    let len_bytes = fstat(&source)?.st_size as u64;
    let (mut from, mut to) = (0, 0);
    while from < len_bytes {
        let most = usize::try_from(len_bytes - from).unwrap_or(usize::MAX);
        if copy_file_range(&source, Some(&mut from), &target, Some(&mut to), most)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// A part of a compressed extent.
#[derive(Clone, Copy, Debug)]
pub struct EncodedExtent<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of the file that it covers.
    pub len_bytes: u64,
    /// Bytes of the whole extent when decoded.
    pub unencoded_len_bytes: u64,
    /// The start of the part in the decoded extent.
    pub unencoded_offset: u64,
    /// Algorithm (`BTRFS_ENCODED_IO_COMPRESSION_*`).
    pub compression: u32,
    /// The extent as it is stored.
    pub data: &'a [u8],
}

/// `BTRFS_IOC_ENCODED_WRITE`: writes an extent as it is stored.
pub fn write_encoded(file: impl AsFd, extent: &EncodedExtent<'_>) -> io::Result<()> {
    let vector = IoVec { base: extent.data.as_ptr(), len_bytes: extent.data.len() };
    let argument = EncodedArgs {
        iov: &raw const vector,
        iovcnt: 1,
        offset: i64::try_from(extent.offset).map_err(|_| Errno::FBIG)?,
        flags: 0,
        len: extent.len_bytes,
        unencoded_len: extent.unencoded_len_bytes,
        unencoded_offset: extent.unencoded_offset,
        compression: extent.compression,
        encryption: 0,
        reserved: [0; 64],
    };
    // SAFETY: `EncodedArgs` has the layout that this request reads; its vector describes a slice
    // that is borrowed until the call has returned, and which is only read.
    let written = unsafe { ioctl(file, Write(argument)) }?;
    if written == extent.data.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// A request that returns a number of bytes, which the usual ones ignore.
struct Write(EncodedArgs);

// SAFETY: the opcode is that of the structure that the pointer points to, which the kernel does not
// change, and it returns a number of bytes.
unsafe impl Ioctl for Write {
    type Output = usize;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        ENCODED_WRITE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        usize::try_from(out).map_err(|_| Errno::INVAL)
    }
}
