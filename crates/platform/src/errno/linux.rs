//! The errors that Linux has by these names.

pub use libc::{EDQUOT, ENODATA, EUCLEAN};
