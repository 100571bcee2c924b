//! Volumes in memory, without a kernel.

mod mapping;
mod synthetic;
mod verify;
mod writes;
