//! Power cuts in tests: what a cut may leave of a file system, and what it must.
//!
//! A test loads an image into memory, works on a [`Recording`](larder_test_devices::Recording) of
//! it, and notes in a [`History`] what was done and promised. It replays the recording, cuts the
//! power where it likes, of which something has [`survival`], and holds what is left to the
//! history, to both checkers, and after [`store`] to the kernel.
//!
//! # Invariants
//! - A superblock is written whole or not at all: commits count on it, and so does the kernel
//!   ([`survival`]).
//! - What a cut leaves is sound to every checker ([`assert_sound`]).
//! - What a call promised is judged after every cut from where the recording was when it had
//!   returned.
//! - What becomes of unflushed changes is said in one place ([`survival`]).
//! - Every cut is held to our own checker, and of one device to `btrfs check`. Mounts by the kernel
//!   are sampled, and so is what `btrfs check` says of several devices.
#![forbid(unsafe_code)]

mod history;
mod memory;
mod sound;
mod superblock;
mod survival;

pub use history::History;
pub use memory::{load, store};
pub use sound::{assert_sound, assert_sound_to_btrfs, assert_sound_to_larder};
pub use survival::survival;
