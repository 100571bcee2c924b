//! The operation that a request asks for, with all its parts checked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Request;
use super::abi::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, GetxattrIn, InitIn,
    InterruptIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In,
    RenameIn, SetattrIn, SetxattrIn, WriteIn, opcode,
};

/// An operation of the protocol. `Other` stands for those that this server leaves to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Init(InitIn),
    Destroy,
    Lookup { name: &'a OsStr },
    Forget { lookups: u64 },
    BatchForget(Forgets<'a>),
    GetAttr,
    SetAttr(SetattrIn),
    Statx,
    Readlink,
    Symlink { name: &'a OsStr, target: &'a OsStr },
    Mknod { name: &'a OsStr, new: MknodIn },
    Mkdir { name: &'a OsStr, new: MkdirIn },
    Tmpfile { new: CreateIn },
    Unlink { name: &'a OsStr },
    Rmdir { name: &'a OsStr },
    Rename { name: &'a OsStr, new_directory: u64, new_name: &'a OsStr, flags: u32 },
    Link { inode: u64, name: &'a OsStr },
    Read(ReadIn),
    Write { to: WriteIn, data: &'a [u8] },
    Lseek(LseekIn),
    Fallocate(FallocateIn),
    CopyFileRange(CopyFileRangeIn),
    Release(ReleaseIn),
    ReleaseDirectory,
    Fsync,
    Syncfs,
    Readdir { from: ReadIn, plus: bool },
    Statfs,
    Open(OpenIn),
    OpenDirectory,
    Create { name: &'a OsStr, new: CreateIn },
    Interrupt { unique: u64 },
    SetXattr { name: &'a OsStr, value: &'a [u8], flags: u32, setxattr_flags: u32 },
    GetXattr { name: &'a OsStr, size: u32 },
    ListXattr { size: u32 },
    RemoveXattr { name: &'a OsStr },
    Ioctl { call: IoctlIn, data: &'a [u8] },
    Other,
}

/// The nodes of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgets<'a>(&'a [u8]);

impl<'a> Forgets<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = ForgetOne> + 'a {
        self.0
            .chunks_exact(size_of::<ForgetOne>())
            .filter_map(|one| ForgetOne::read_from_bytes(one).ok())
    }
}

impl<'a> Operation<'a> {
    /// The operation that `request` asks for.
    ///
    /// # Errors
    /// `EINVAL` if a part of it is missing.
    pub(crate) fn of(request: &Request<'a>) -> Result<Self, Errno> {
        let mut names = Names(request.payload());
        Ok(match request.opcode() {
            opcode::INIT => Self::Init(init(request.fixed())),
            opcode::DESTROY => Self::Destroy,
            opcode::LOOKUP => Self::Lookup { name: names.next()? },
            opcode::FORGET => Self::Forget { lookups: fixed::<ForgetIn>(request)?.nlookup },
            opcode::BATCH_FORGET => {
                let count = fixed::<BatchForgetIn>(request)?.count as usize;
                let len = count.checked_mul(size_of::<ForgetOne>()).ok_or(Errno::INVAL)?;
                Self::BatchForget(Forgets(request.payload().get(..len).ok_or(Errno::INVAL)?))
            }
            opcode::GETATTR => Self::GetAttr,
            opcode::SETATTR => Self::SetAttr(fixed(request)?),
            opcode::STATX => Self::Statx,
            opcode::READLINK => Self::Readlink,
            opcode::SYMLINK => Self::Symlink { name: names.next()?, target: names.next()? },
            opcode::MKNOD => Self::Mknod { name: names.next()?, new: fixed(request)? },
            opcode::MKDIR => Self::Mkdir { name: names.next()?, new: fixed(request)? },
            opcode::TMPFILE => Self::Tmpfile { new: fixed(request)? },
            opcode::UNLINK => Self::Unlink { name: names.next()? },
            opcode::RMDIR => Self::Rmdir { name: names.next()? },
            opcode::RENAME => {
                let RenameIn { newdir } = fixed(request)?;
                names.rename(newdir, 0)?
            }
            opcode::RENAME2 => {
                let Rename2In { newdir, flags, .. } = fixed(request)?;
                names.rename(newdir, flags)?
            }
            opcode::LINK => {
                Self::Link { inode: fixed::<LinkIn>(request)?.oldnodeid, name: names.next()? }
            }
            opcode::READ => Self::Read(fixed(request)?),
            opcode::WRITE => {
                let to: WriteIn = fixed(request)?;
                let data = request.payload().get(..to.size as usize).ok_or(Errno::INVAL)?;
                Self::Write { to, data }
            }
            opcode::LSEEK => Self::Lseek(fixed(request)?),
            opcode::FALLOCATE => Self::Fallocate(fixed(request)?),
            opcode::COPY_FILE_RANGE => Self::CopyFileRange(fixed(request)?),
            opcode::RELEASE => Self::Release(fixed(request)?),
            opcode::RELEASEDIR => Self::ReleaseDirectory,
            opcode::FSYNC | opcode::FSYNCDIR => Self::Fsync,
            opcode::SYNCFS => Self::Syncfs,
            opcode::READDIR => Self::Readdir { from: fixed(request)?, plus: false },
            opcode::READDIRPLUS => Self::Readdir { from: fixed(request)?, plus: true },
            opcode::STATFS => Self::Statfs,
            opcode::OPEN => Self::Open(fixed(request)?),
            opcode::OPENDIR => Self::OpenDirectory,
            opcode::CREATE => Self::Create { name: names.next()?, new: fixed(request)? },
            opcode::INTERRUPT => Self::Interrupt { unique: fixed::<InterruptIn>(request)?.unique },
            opcode::SETXATTR => {
                let SetxattrIn { size, flags, setxattr_flags, .. } = fixed(request)?;
                let name = names.next()?;
                let value = names.0.get(..size as usize).ok_or(Errno::INVAL)?;
                Self::SetXattr { name, value, flags, setxattr_flags }
            }
            opcode::GETXATTR => {
                Self::GetXattr { name: names.next()?, size: fixed::<GetxattrIn>(request)?.size }
            }
            opcode::LISTXATTR => Self::ListXattr { size: fixed::<GetxattrIn>(request)?.size },
            opcode::REMOVEXATTR => Self::RemoveXattr { name: names.next()? },
            opcode::IOCTL => {
                let call: IoctlIn = fixed(request)?;
                let data = request.payload().get(..call.in_size as usize).ok_or(Errno::INVAL)?;
                Self::Ioctl { call, data }
            }
            _ => Self::Other,
        })
    }
}

fn fixed<T: FromBytes>(request: &Request<'_>) -> Result<T, Errno> {
    T::read_from_bytes(request.fixed()).map_err(|_| Errno::INVAL)
}

/// INIT, which older kernels send shorter: missing fields are zeros.
fn init(bytes: &[u8]) -> InitIn {
    let mut init = InitIn::new_zeroed();
    let len = bytes.len().min(size_of::<InitIn>());
    init.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    init
}

/// Names one after another, each with a zero at its end.
struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    fn next(&mut self) -> Result<&'a OsStr, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (name, behind) = self.0.split_at(end);
        self.0 = &behind[1..];
        Ok(OsStr::from_bytes(name))
    }

    fn rename(mut self, new_directory: u64, flags: u32) -> Result<Operation<'a>, Errno> {
        let (name, new_name) = (self.next()?, self.next()?);
        Ok(Operation::Rename { name, new_directory, new_name, flags })
    }
}
