//! What breaks the rules of a request or of its answer.

use std::io;

/// The error for an invalid request or answer.
pub(crate) fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
