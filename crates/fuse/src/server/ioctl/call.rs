//! An ioctl that is being served.

use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::server::call::{Call, Outcome};
use crate::server::nodes::FuseNode;
use crate::server::state::Server;

/// An ioctl: the caller, the input, and the output so far.
pub(super) struct Ioctl<'i> {
    pub(super) server: &'i Server,
    pub(super) call: &'i Call<'i>,
    pub(super) data: &'i [u8],
    out_bytes: usize,
    pub(super) output: Vec<u8>,
    /// An error that comes with the output, not in its place.
    pub(super) error: Option<Errno>,
    /// The number that the call returns if there is no error.
    pub(super) answer: i32,
}

impl<'i> Ioctl<'i> {
    pub(super) fn new(
        server: &'i Server,
        call: &'i Call<'i>,
        data: &'i [u8],
        out_bytes: usize,
    ) -> Self {
        Self { server, call, data, out_bytes, output: Vec::new(), error: None, answer: 0 }
    }

    /// The node that the ioctl was called on.
    pub(super) fn node(&self) -> Result<Arc<FuseNode>, Errno> {
        self.server.node(self.call)
    }

    /// Refuses callers without `capability`.
    pub(super) fn check_may(&self, capability: CapabilitySet) -> Outcome {
        self.call.caller.check_may(capability)
    }

    /// Refuses a change through a mount that is read-only.
    pub(super) fn check_writable(&self) -> Outcome {
        self.server.check_writable_view(self.call)
    }

    /// The structure at the beginning of the input.
    pub(super) fn input<T: FromBytes>(&self) -> Result<T, Errno> {
        self.input_and_more().map(|(input, _)| input)
    }

    /// The structure at the beginning of the input, and the rest.
    pub(super) fn input_and_more<T: FromBytes>(&self) -> Result<(T, &'i [u8]), Errno> {
        T::read_from_prefix(self.data).map_err(|_| Errno::INVAL)
    }

    /// Appends a structure to the output, or as much of it as the caller has room for.
    #[allow(clippy::unnecessary_wraps, reason = "handlers end with it")]
    pub(super) fn output(&mut self, output: &(impl IntoBytes + Immutable + ?Sized)) -> Outcome {
        let bytes = output.as_bytes();
        let room = self.out_bytes - self.output.len();
        self.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }
}

/// The text in `bytes`, up to its zero.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// `text` followed by zeros, cut so that it ends with at least one.
pub(super) fn padded<const LEN: usize>(text: &[u8]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let len = text.len().min(LEN - 1);
    bytes[..len].copy_from_slice(&text[..len]);
    bytes
}
