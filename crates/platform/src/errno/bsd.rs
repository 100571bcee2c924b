//! The BSDs and macOS: a missing extended attribute has an error of its own, damaged data none.

pub use libc::{EDQUOT, EIO as EUCLEAN, ENOATTR as ENODATA};
