//! Where bytes are kept.
//!
//! A [`Device`] is a fixed-length array of bytes with exact reads and writes, a durable barrier, and
//! two hints. This crate does not know what the bytes mean.
//!
//! - [`FileDevice`]: a regular file or a block device.
//! - [`MemoryDevice`]: sparse memory with cheap snapshots.
//!
//! # Invariants
//! - A read or a write is whole or an error: no call returns having moved fewer bytes than asked.
//! - No call touches a byte at or beyond [`Device::len_bytes`]; nothing grows a device implicitly.
//! - Bytes are durable only after a [`Device::flush`] that began after their write returned. Between
//!   two flushes writes may reach the medium in any order, in part, or not at all.
//! - Hints ([`Device::readahead`], [`Device::discard`]) never change the outcome of a read except
//!   that discarded bytes become unspecified.

mod device;
mod error;
mod file;
mod memory;

pub use device::Device;
pub use error::{DeviceError, Operation};
pub use file::{Access, FileDevice};
pub use memory::MemoryDevice;
