//! A request that is being served.

use larder::{FileType, NewInode};
use rustix::io::Errno;

use super::access::Caller;
use crate::transport::Tell;

/// The result of an operation.
pub(super) type Outcome = Result<(), Errno>;

/// A request that is being served: which node it is about, and who called.
pub(super) struct Call<'c> {
    /// The node.
    pub(super) id: u64,
    /// The number of the request itself.
    pub(super) unique: u64,
    pub(super) caller: Caller<'c>,
    pub(super) kernel: &'c dyn Tell,
}

impl Call<'_> {
    /// A new inode that belongs to the caller. A default ACL of the directory replaces the umask.
    pub(super) fn new_inode(
        &self,
        mode: u32,
        umask: u32,
        device: (u32, u32),
    ) -> Result<NewInode, Errno> {
        let is_device =
            matches!(FileType::from_mode(mode), Some(FileType::BlockDevice | FileType::CharDevice));
        let device = if is_device { device } else { (0, 0) };
        let (uid, gid) = self.caller.stored_ids()?;
        Ok(NewInode { mode, uid, gid, umask, device })
    }
}

/// The error number of an error of the library.
#[allow(clippy::needless_pass_by_value, reason = "errors are mapped with it")]
pub(super) fn failed(error: larder::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Why a check by the server refuses what the library is about to do, or why the library does.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Errno);

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<larder::Error> for Refused {
    fn from(error: larder::Error) -> Self {
        Self(failed(error))
    }
}

impl From<Refused> for Errno {
    fn from(Refused(errno): Refused) -> Self {
        errno
    }
}
