//! Receiving: a stream becomes subvolumes of a file system.
//!
//! [`receive`] reads commands, refuses what no sound stream says, and hands the rest to a [`Target`]:
//! [`ImageTarget`] is a file system that this process has open for writing, [`MountedTarget`] a directory of
//! one that is mounted.
//!
//! # Invariants
//! - A target gets no path that leads anywhere but down: relative, without `.`, `..`, empty parts or
//!   zeros. It follows no symbolic link and enters no other subvolume on the way.
//! - Nothing is changed but the subvolume that is being received; others are only read.
//! - Memory is bounded by the longest command, whatever the stream says.
//! - Only a subvolume of which every command was applied gets a received uuid and becomes read-only. Any
//!   other can be told by not being read-only.

mod encoded;
mod error;
mod image;
mod mounted;
mod node;
mod path;
mod receiver;
mod target;

pub use error::{CommandError, CommandProblem, ReceiveError, ReceiveProblem};
pub use image::ImageTarget;
pub use mounted::MountedTarget;
pub use receiver::{Event, ReceiveOptions, Received, receive};
pub use target::{Origin, Target};
