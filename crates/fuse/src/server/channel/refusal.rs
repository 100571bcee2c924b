//! Why a request is not served.

use larder::{Error, SendError};
use rustix::io::Errno;

/// A number for programs, and a text for people.
pub(in crate::server) struct Refusal {
    pub(in crate::server) errno: Errno,
    pub(in crate::server) message: String,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let errno = Errno::from_raw_os_error(error.errno());
        Self { errno, message: error.to_string() }
    }
}

impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        let errno = match &error {
            SendError::NotReadOnly(_) => Errno::PERM,
            SendError::Read(_) => Errno::IO,
            SendError::Output(error) => Errno::from_io_error(error).unwrap_or(Errno::PIPE),
            _ => Errno::INVAL,
        };
        Self { errno, message: error.to_string() }
    }
}
