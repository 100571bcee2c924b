//! Power cuts in tests: the states that a cut may leave of a file system, and those that it must
//! not.
//!
//! A test loads an image into memory, works on a [`Recording`](larder_test_devices::Recording) of
//! it, and records steps and promises in a [`History`]. It replays the recording, cuts the power at
//! any point, with [`survival`] deciding about unflushed changes, and checks the rest against the
//! history, with both checkers, and after [`store`] with the kernel.
//!
//! # Invariants
//! - A superblock is written whole or not at all: commits depend on it, and so does the kernel
//!   ([`survival`]).
//! - The state after a cut is sound for every checker ([`assert_sound`]).
//! - Every cut after a call returned must keep the call's promise.
//! - [`survival`] alone decides the fate of unflushed changes.
//! - Our own checker checks every cut, and `btrfs check` every one of a single device. Mounts by
//!   the kernel are sampled, and so is `btrfs check` on several devices.
#![forbid(unsafe_code)]

mod history;
mod memory;
mod sound;
mod superblock;
mod survival;
mod workloads;

pub use history::History;
pub use memory::{load, store};
pub use sound::{
    assert_sound, assert_sound_but_for_bad_copies, assert_sound_to_btrfs, assert_sound_to_larder,
};
pub use survival::survival;
pub use workloads::{AllocateAs, Name, Operation, Persistence, Region, Step, Workload, WriteAs};
