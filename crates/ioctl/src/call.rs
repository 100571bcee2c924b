//! Making requests: the only module with pointers, except for writes of stored extents.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::ioctl::{IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, ioctl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::{ENVELOPE_VERSION, Envelope, IN_ENVELOPE, MOST_IN_ENVELOPE, structure_bytes};
use crate::invalid::invalid;

/// The type of the kernel's btrfs, as `statfs` returns it (`BTRFS_SUPER_MAGIC`).
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683E;
/// The size of a request with a buffer, unless something limits it.
const MOST_BYTES: usize = 256 << 10;

/// A request that has no structure.
pub(crate) fn plain<const REQUEST: Opcode>(inode: impl AsFd) -> io::Result<()> {
    const { assert!(structure_bytes(REQUEST) == 0) };
    // SAFETY: the request neither reads nor fills anything, by the size in its number.
    Ok(unsafe { ioctl(inode, NoArg::<REQUEST>::new()) }?)
}

/// A request that reads a structure.
pub(crate) fn write<const REQUEST: Opcode, T>(inode: impl AsFd, input: T) -> io::Result<()>
where
    T: IntoBytes + Immutable,
{
    const { assert!(structure_bytes(REQUEST) == size_of::<T>()) };
    // SAFETY: the request reads a structure of the size in its number, which is that of `T`.
    Ok(unsafe { ioctl(inode, Setter::<REQUEST, T>::new(input)) }?)
}

/// A request with a number in place of a pointer to it. A Larder mount gets it in an envelope.
pub(crate) fn number<const REQUEST: Opcode>(inode: impl AsFd, number: i32) -> io::Result<()> {
    if !is_kernel_btrfs(&inode)? {
        return in_envelope(inode, REQUEST, &mut number.to_ne_bytes());
    }
    // SAFETY: the request takes a number, and no pointer.
    Ok(unsafe { ioctl(inode, IntegerSetter::<REQUEST>::new_usize(number as usize)) }?)
}

/// A request that reads a structure and fills it.
pub(crate) fn update<const REQUEST: Opcode, T>(inode: impl AsFd, both: &mut T) -> io::Result<()>
where
    T: FromBytes + IntoBytes,
{
    const { assert!(structure_bytes(REQUEST) == size_of::<T>()) };
    // SAFETY: the request reads and fills a structure of the size in its number, which is that of
    // `T`, of which all bytes are valid.
    Ok(unsafe { ioctl(inode, Updater::<REQUEST, T>::new(both)) }?)
}

/// A request that reads a structure and answers with a number.
pub(crate) fn ask<const REQUEST: Opcode, T>(inode: impl AsFd, mut input: T) -> io::Result<i32>
where
    T: FromBytes + IntoBytes,
{
    ask_and_fill::<REQUEST, T>(inode, &mut input)
}

/// A request that reads a structure, fills it, and answers with a number.
pub(crate) fn ask_and_fill<const REQUEST: Opcode, T>(
    inode: impl AsFd,
    both: &mut T,
) -> io::Result<i32>
where
    T: FromBytes + IntoBytes,
{
    const { assert!(structure_bytes(REQUEST) == size_of::<T>()) };
    let asked = Asked { request: REQUEST, structure: (&raw mut *both).cast() };
    // SAFETY: the request reads and fills a structure of the size in its number, which is that of
    // `T`, of which all bytes are valid, and which lives as long as the call.
    Ok(unsafe { ioctl(inode, asked) }?)
}

/// A request that answers with a number.
struct Asked {
    request: Opcode,
    structure: *mut c_void,
}

// SAFETY: the function that makes one ensures that the structure has the size in the number.
unsafe impl Ioctl for Asked {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.structure
    }

    unsafe fn output_from_ptr(answer: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(answer)
    }
}

/// A request that fills a structure.
pub(crate) fn read<const REQUEST: Opcode, T>(inode: impl AsFd) -> io::Result<T>
where
    T: FromBytes + IntoBytes,
{
    let mut output = T::new_zeroed();
    update::<REQUEST, T>(inode, &mut output)?;
    Ok(output)
}

/// The most bytes of a request, with all that follows it, that reach the file system of `inode`.
pub(crate) fn most_bytes(inode: impl AsFd) -> io::Result<usize> {
    Ok(if is_kernel_btrfs(inode)? { MOST_BYTES } else { MOST_IN_ENVELOPE })
}

/// Whether the kernel's btrfs answers, which needs no envelopes.
pub(crate) fn is_kernel_btrfs(inode: impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(inode)?.f_type as u64 == BTRFS_SUPER_MAGIC)
}

/// A request whose structure `T`, at the start of `bytes`, is followed by a buffer: `count` returns
/// the number of bytes that the structure asks to have filled. If the structure points to the
/// buffer, `lead` sets the pointer.
pub(crate) fn with_more<T>(
    inode: impl AsFd,
    request: Opcode,
    bytes: &mut [u8],
    count: impl Fn(&T) -> u64,
    lead: Option<fn(&mut T, u64)>,
) -> io::Result<()>
where
    T: FromBytes + IntoBytes + KnownLayout,
{
    if !is_kernel_btrfs(&inode)? {
        return in_envelope(inode, request, bytes);
    }
    let (structure, more) =
        T::mut_from_prefix(bytes).map_err(|_| invalid("a request that is too short"))?;
    let fits = count(structure) <= more.len() as u64;
    if structure_bytes(request) != size_of::<T>() || !fits {
        return Err(invalid("a request that asks for more than there is room for"));
    }
    if let Some(lead) = lead {
        lead(structure, more.as_mut_ptr() as u64);
    }
    // SAFETY: the request reads and fills a structure of the size in its number, which is that of
    // `T`, and no more of what follows it or of what it leads to than it says, which is in `bytes`.
    unsafe { ioctl(inode, Raw { request, bytes }) }?;
    Ok(())
}

/// A request of which the bytes are `bytes`, in an envelope.
pub(crate) fn in_envelope(inode: impl AsFd, request: Opcode, bytes: &mut [u8]) -> io::Result<()> {
    let mut envelope: Box<Envelope> =
        Envelope::new_box_zeroed().map_err(|_| io::ErrorKind::OutOfMemory)?;
    let room = envelope.data.get_mut(..bytes.len()).ok_or(invalid("a request that is too long"))?;
    room.copy_from_slice(bytes);
    envelope.version = ENVELOPE_VERSION;
    envelope.request = request;
    envelope.len = bytes.len() as u32;
    update::<IN_ENVELOPE, Envelope>(inode, &mut envelope)?;
    bytes.copy_from_slice(&envelope.data[..bytes.len()]);
    Ok(())
}

/// A request whose length its number does not tell.
struct Raw<'a> {
    request: Opcode,
    bytes: &'a mut [u8],
}

// SAFETY: the function that makes one ensures that the request touches no more than `bytes` and the
// buffer that it points to.
unsafe impl Ioctl for Raw<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Sets the priority of this thread's I/O: a class and, within it, a priority, as ionice(1) has
/// them.
pub fn set_io_priority(class: u8, priority: u8) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const THIS_THREAD: libc::c_int = 0;
    let both = libc::c_int::from(class) << 13 | libc::c_int::from(priority);
    // SAFETY: the call takes numbers only.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, THIS_THREAD, both) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
