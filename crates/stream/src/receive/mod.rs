//! Receiving: a stream becomes subvolumes of a file system.
//!
//! [`receive`] reads commands, refuses invalid ones, and passes the others to a [`Target`]:
//! [`ImageTarget`] is a file system that this process has open for writing, [`MountedTarget`] a
//! directory of a mounted one.
//!
//! # Invariants
//! - A target gets only paths that lead down: relative, without `.`, `..`, empty parts or zeros. It
//!   follows no symbolic link and enters no other subvolume on the way.
//! - Only the subvolume that is being received changes; others are only read.
//! - The longest command bounds memory, whatever the stream says.
//! - A subvolume gets a received uuid and becomes read-only only if every command was applied. So
//!   an incomplete one is known by not being read-only.

mod checkpoint;
mod encoded;
mod error;
mod image;
#[cfg(target_os = "linux")]
mod mounted;
mod node;
mod path;
mod receiver;
mod target;

pub use checkpoint::{Checkpoints, prologue};
pub use error::{CommandError, CommandProblem, ReceiveError, ReceiveProblem};
pub use image::{Changes, Checked, ImageTarget};
#[cfg(target_os = "linux")]
pub use mounted::MountedTarget;
pub use receiver::{Event, ReceiveOptions, Received, receive};
pub use target::{Base, Origin, Target};
