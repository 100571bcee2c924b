//! Memory that the kernel gives page by page, as it is used, and takes back at once.

use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Memory that is shared with the kernel, or private.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory, which belongs to no thread. Its owner sees to it that one thread uses it at
// a time.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(super) fn of_ring(fd: impl AsFd, offset: u64, len: usize) -> Result<Self, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, fd, offset) }?;
        Self::new(start.cast(), len)
    }

    /// `len` bytes of zeros, which take memory as they are used.
    pub(super) fn anonymous(len: usize) -> Result<Self, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        Self::new(start.cast(), len)
    }

    fn new(start: *mut u8, len: usize) -> Result<Self, Errno> {
        Ok(Self { start: NonNull::new(start).ok_or(Errno::NOMEM)?, len })
    }

    /// Where it lies.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this address and length, and nothing refers to it any more. It
        // cannot fail: the kernel chose the address.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Memory of this process alone.
#[derive(Debug)]
pub(super) struct Buffer(Mapping);

impl Buffer {
    /// `len` bytes of zeros, which take memory as they are used.
    pub(super) fn new(len: usize) -> Result<Self, Errno> {
        Mapping::anonymous(len).map(Self)
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped for as long as it is borrowed, and every byte has a value.
        unsafe { slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }

    /// All of it, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nothing else refers to it.
        unsafe { slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }
}
