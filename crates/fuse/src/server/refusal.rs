//! Why a request is not served.

use larder::{Error, SendError};
use rustix::io::Errno;

/// An error number for programs, and a message for people.
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) message: String,
}

/// A refusal that says `message`.
pub(super) fn refuse(errno: Errno, message: &str) -> Refusal {
    Refusal { errno, message: message.to_owned() }
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
