//! The check against images that the kernel made: sound ones, damaged ones, hostile ones.
//!
//! Needs root, loop devices and a kernel with btrfs.

mod damage;
mod hostile;
mod legal;
mod patient;
mod sound;
