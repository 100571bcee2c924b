//! Ioctls that FUSE cannot pass on as they are: the caller puts them in an envelope.

use larder_ioctl::abi::{self, ENVELOPE_VERSION, Envelope};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::FromBytes;

use super::call::Ioctl;
use super::{balance, files, info, search, subvolume};
use crate::server::call::Outcome;

/// Serves the request in an envelope, and returns it with the output in place of the input.
pub(super) fn serve(ioctl: &mut Ioctl<'_>) -> Outcome {
    let envelope = Envelope::ref_from_bytes(ioctl.data).map_err(|_| Errno::INVAL)?;
    if envelope.version != ENVELOPE_VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    let request = envelope.data.get(..envelope.len as usize).ok_or(Errno::INVAL)?;
    let mut inner = Ioctl::new(ioctl.server, ioctl.call, request, request.len());
    match Opcode::from(envelope.request) {
        abi::SNAP_CREATE_V2 => subvolume::snapshot(&mut inner),
        abi::TREE_SEARCH_V2 => search::search_tree_v2(&mut inner),
        abi::FIEMAP => files::extents(&mut inner),
        abi::SPACE_INFO => info::space(&mut inner),
        abi::INO_PATHS => files::inode_paths(&mut inner),
        abi::BALANCE_CTL => balance::control(&mut inner),
        abi::LOGICAL_INO | abi::LOGICAL_INO_V2 => files::extent_references(&mut inner),
        _ => Err(Errno::NOTTY),
    }?;
    let mut answer = *envelope;
    answer.data[..inner.output.len()].copy_from_slice(&inner.output);
    ioctl.error = inner.error;
    ioctl.output(&answer)
}
