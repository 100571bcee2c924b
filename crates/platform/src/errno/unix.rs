//! Unix: the system's errors are numbers.

use std::io;

/// The number of an error of the system. `None` if it is another one.
pub fn of(error: &io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// What the number means.
pub fn kind(errno: i32) -> io::ErrorKind {
    io::Error::from_raw_os_error(errno).kind()
}
