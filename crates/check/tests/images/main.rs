//! The check against images that the kernel made: sound ones, damaged ones, hostile ones.
//!
//! Needs root, loop devices and a kernel with btrfs.

mod campaign;
mod damage;
mod found;
mod hostile;
mod legal;
mod located;
mod patient;
mod random;
mod sound;
mod unread;
