//! A request as it came in.

use rustix::io::Errno;
use zerocopy::FromBytes;

use super::abi::{self, InHeader, opcode};

/// A request: its header, the structure that its kind begins with, and the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    header: InHeader,
    fixed: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes a message apart.
    ///
    /// # Errors
    /// `EINVAL` if it is shorter than its header says, or than a request of its kind.
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Errno> {
        let (header, body) = InHeader::read_from_prefix(message).map_err(|_| Errno::INVAL)?;
        let len = (header.len as usize).checked_sub(size_of::<InHeader>()).ok_or(Errno::INVAL)?;
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let len = len.checked_sub(extension_bytes).ok_or(Errno::INVAL)?;
        let body = body.get(..len).ok_or(Errno::INVAL)?;
        // An older kernel sends a shorter INIT.
        let fixed_len = match header.opcode {
            opcode::INIT => body.len().min(size_of::<abi::InitIn>()),
            other => fixed_len(other),
        };
        let (fixed, payload) = body.split_at_checked(fixed_len).ok_or(Errno::INVAL)?;
        Ok(Self { header, fixed, payload })
    }

    /// Puts a request together from its parts in a ring: `op_in` begins with the structure that its
    /// kind begins with, and `payload` is the rest.
    ///
    /// # Errors
    /// `EINVAL` if it is shorter than its header says, or than a request of its kind.
    pub(crate) fn of_parts(
        header: InHeader,
        op_in: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, Errno> {
        let fixed = op_in.get(..fixed_len(header.opcode)).ok_or(Errno::INVAL)?;
        let least_len = size_of::<InHeader>() + fixed.len() + payload.len();
        // The missing bytes would be those of an earlier request.
        if (header.len as usize) < least_len {
            return Err(Errno::INVAL);
        }
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let len = payload.len().checked_sub(extension_bytes).ok_or(Errno::INVAL)?;
        Ok(Self { header, fixed, payload: &payload[..len] })
    }

    /// The kind of request (`FUSE_*` of `enum fuse_opcode`).
    pub(crate) fn opcode(&self) -> u32 {
        self.header.opcode
    }

    pub(crate) fn header(&self) -> &InHeader {
        &self.header
    }

    pub(crate) fn fixed(&self) -> &'a [u8] {
        self.fixed
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The length of the structure that a request of this kind begins with.
fn fixed_len(code: u32) -> usize {
    match code {
        opcode::FORGET => size_of::<abi::ForgetIn>(),
        opcode::GETATTR => size_of::<abi::GetattrIn>(),
        opcode::SETATTR => size_of::<abi::SetattrIn>(),
        opcode::STATX => size_of::<abi::StatxIn>(),
        opcode::MKNOD => size_of::<abi::MknodIn>(),
        opcode::MKDIR => size_of::<abi::MkdirIn>(),
        opcode::RENAME => size_of::<abi::RenameIn>(),
        opcode::RENAME2 => size_of::<abi::Rename2In>(),
        opcode::LINK => size_of::<abi::LinkIn>(),
        opcode::INTERRUPT => size_of::<abi::InterruptIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        opcode::WRITE => size_of::<abi::WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<abi::FsyncIn>(),
        opcode::SETXATTR => size_of::<abi::SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<abi::GetxattrIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<abi::OpenIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<abi::CreateIn>(),
        opcode::IOCTL => size_of::<abi::IoctlIn>(),
        opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        opcode::LSEEK => size_of::<abi::LseekIn>(),
        opcode::COPY_FILE_RANGE => size_of::<abi::CopyFileRangeIn>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use zerocopy::{FromZeros, IntoBytes};

    use super::{InHeader, Request, opcode};

    fn header(opcode: u32, body_len: usize, total_extlen: u16) -> InHeader {
        let len = (size_of::<InHeader>() + body_len) as u32;
        InHeader { len, opcode, total_extlen, ..InHeader::new_zeroed() }
    }

    #[test]
    fn a_request_in_parts_is_like_a_whole_one() {
        let (op_in, payload) = ([7; 128], *b"name\0content!extended");
        let header = header(opcode::SETXATTR, 16 + payload.len(), 1);
        let whole = [header.as_bytes(), &op_in[..16], &payload].concat();
        let (whole, parts) =
            (Request::parse(&whole).unwrap(), Request::of_parts(header, &op_in, &payload).unwrap());
        assert_eq!((whole.fixed(), whole.payload()), (parts.fixed(), parts.payload()));
        assert_eq!(parts.payload(), b"name\0content!");
    }

    #[test]
    fn parts_that_are_missing_are_not_taken_from_elsewhere() {
        let error = |header, payload| Request::of_parts(header, &[7; 128], payload).err();
        assert_eq!(error(header(opcode::GETATTR, 16, 0), b""), None);
        assert_eq!(error(header(opcode::GETATTR, 15, 0), b""), Some(Errno::INVAL));
        assert_eq!(error(header(opcode::LOOKUP, 4, 0), b"name\0"), Some(Errno::INVAL));
        assert_eq!(error(header(opcode::LOOKUP, 5, 1), b"name\0"), Some(Errno::INVAL));
    }
}
