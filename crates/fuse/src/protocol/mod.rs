//! The FUSE protocol: the bytes on a connection between the kernel and a server (linux/fuse.h).
//!
//! # Invariants
//! - No request is trusted: each length is checked against the bytes that are there, each name ends
//!   at its zero, and anything that does not fit is `EINVAL`, never a panic.
//! - A reply never grows beyond the room that the kernel left for it.

pub(crate) mod abi;
mod notice;
mod operation;
mod reply;
mod request;

pub(crate) use notice::Notice;
pub(crate) use operation::Operation;
pub(crate) use reply::{Answer, Reply};
pub(crate) use request::Request;
