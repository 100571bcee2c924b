//! ioctls.

use rustix::io::Errno;

use super::{Call, Outcome, Server};
use crate::protocol::Reply;
use crate::protocol::abi::IoctlIn;

impl Server {
    pub(super) fn ioctl(
        &self,
        _call: &Call<'_>,
        _ioctl: &IoctlIn,
        _data: &[u8],
        _reply: &mut Reply<'_>,
    ) -> Outcome {
        Err(Errno::NOTTY)
    }
}
