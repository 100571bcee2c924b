//! Requests that FUSE cannot pass on as they are: the caller puts them in an envelope.

use larder_ioctl::abi::{self, ENVELOPE_VERSION, Envelope};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::FromBytes;

use super::{Ioctl, Outcome, Server};
use crate::server::Call;

impl Server {
    /// Serves what is in an envelope, and returns it with the answer in place of the request.
    pub(super) fn serve_envelope(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let envelope = Envelope::ref_from_bytes(io.data).map_err(|_| Errno::INVAL)?;
        if envelope.version != ENVELOPE_VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        let request = envelope.data.get(..envelope.len as usize).ok_or(Errno::INVAL)?;
        let mut inner = Ioctl::new(request, request.len());
        match Opcode::from(envelope.request) {
            abi::SNAP_CREATE_V2 => self.snapshot(call, &mut inner),
            abi::TREE_SEARCH_V2 => self.search_tree_v2(call, &mut inner),
            abi::SPACE_INFO => self.space_info(&mut inner),
            abi::INO_PATHS => self.inode_paths(call, &mut inner),
            abi::LOGICAL_INO | abi::LOGICAL_INO_V2 => self.places_of_address(call, &mut inner),
            _ => Err(Errno::NOTTY),
        }?;
        let mut answer = *envelope;
        answer.data[..inner.output.len()].copy_from_slice(&inner.output);
        io.error = inner.error;
        io.output(&answer)
    }
}
