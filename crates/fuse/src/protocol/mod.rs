//! The FUSE protocol: what goes over a connection between the kernel and a server (linux/fuse.h).
//!
//! # Invariants
//! - Nothing is believed about a request: each length is checked against the bytes that are there, each
//!   name ends where its zero is, and what does not fit is `EINVAL`, never a panic.
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
