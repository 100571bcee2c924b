//! Emptying a block group: what it has moves to others, at other addresses.
//!
//! A batch of extents moves in one commit, while no thread is joined. The plan follows the
//! references of each extent up to the roots of all subvolumes that lead to it. Each block on the
//! way is copied once, since its pointers change, however many subvolumes share it.
//!
//! # Invariants
//! - Only addresses change. An extent has as many references before and after, from the same blocks
//!   and files. So what is shared stays shared, by read-only snapshots too.
//! - A block that moves and that several subvolumes lead to gets full back references, and a flag
//!   that says that it moved, as the kernel's do: its generation no longer says that it is shared.
//! - A batch is planned, its space taken and its data copied before anything changes. Until then it
//!   may fail, and nothing has happened.
//! - The plan finds every pointer that a reference stands for, or it is refused: no pointer to the
//!   old address is left.
//! - Data with checksums never changes where it is, so that it is copied while other threads go on.
//!   All other data is copied while no thread is joined, since a thread that writes in place has a
//!   handle.
//! - A thread that only reads finds the old address or the new one, and checksums for either: those
//!   of the new one come before anything leads there, those of the old one go after the hook was told.
//! - What moved is told to the hook before any thread joins again.
//! - A subvolume that is being deleted keeps its progress: keys do not change. Pointers before the
//!   progress lead nowhere, and count for nothing.
//! - A group that is left because something failed is allocated from again.

mod carry_out;
mod content;
mod empty_group;
mod plan;

pub use empty_group::Emptied;
