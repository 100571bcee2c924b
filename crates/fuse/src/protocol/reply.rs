//! The body of a reply, written where the transport sends it from.

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With the reply that was written.
    Reply,
    /// With an error, in place of the reply.
    Error(Errno),
    /// Not at all: the kernel expects no answer.
    Nothing,
}

/// Room for the body of a reply.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    /// An empty reply that can grow to the size of `room`.
    pub(crate) fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the body is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a structure.
    pub(crate) fn put(&mut self, part: &(impl IntoBytes + Immutable)) -> Result<(), Errno> {
        self.put_bytes(part.as_bytes())
    }

    /// Appends bytes.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let room = self.room.get_mut(self.len..).unwrap_or_default();
        room.get_mut(..bytes.len()).ok_or(Errno::OVERFLOW)?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Room for at most `len` bytes more, of which [`filled`](Self::filled) says how many count.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let room = self.room.get_mut(self.len..).unwrap_or_default();
        let len = len.min(room.len());
        &mut room[..len]
    }

    /// `len` bytes of the room were filled.
    pub(crate) fn filled(&mut self, len: usize) {
        self.len = (self.len + len).min(self.room.len());
    }
}
