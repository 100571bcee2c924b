//! Devices: arrays of bytes that are kept.
//!
//! A [`Device`] is a fixed-length array of bytes with exact reads and writes, a durable barrier,
//! and two hints. This crate does not interpret the bytes.
//!
//! - [`FileDevice`]: a regular file or a block device. Opened for writing, it is the only writer.
//! - [`MemoryDevice`]: sparse memory with cheap snapshots.
//! - [`Window`]: a part of another device.
//! - [`Overlay`]: changes beside another device, which stays as it is.
//! - [`PrefetchingDevice`]: readahead for reads around the page cache.
//! - [`Signature`]: the content of a file or block device, if the system's libblkid knows it.
//! - [`in_use`]: the other use of a path; [`has_writer`]: whether a program writes to it;
//!   [`partition_node`]: the node of a part of a disk.
//! - [`KernelMount`], on Linux: the mounts that a process can reach.
//! - [`StandIn`], on Linux: a block device for a mount that needs one as its source.
//! - [`KeptState`]: devices as they were at a time, for a reader.
//! - [`now`]: the clock for times of files.
//!
//! # Invariants
//! - A read or a write is whole or an error: no call returns having moved fewer bytes than asked.
//! - No call touches a byte at or beyond [`Device::len_bytes`]; nothing grows a device implicitly.
//! - Bytes are durable only after a [`Device::flush`] that began after their write returned.
//!   Between two flushes writes may reach the medium in any order, in part, or not at all.
//! - After a flush failed no later one on that device succeeds.
//! - A file or block device is never open for writing twice, nor while a kernel has it mounted,
//!   attached or otherwise held at the time of opening.
//! - The exclusive lock of a device that is open for writing is on the file, and on all that lies
//!   below a loop device. A block device is claimed from the kernel too. An error says where a
//!   device is in use.
//! - No thread reads or writes through a [`StandIn`], and it excludes no writer. The kernel
//!   detaches it when the last process closes it.
//! - All times of files come from one clock ([`now`]): that of the kernel's own file systems.
//! - Readahead never holds more than its limit, and its copies never become stale.

mod device;
mod error;
mod file;
mod kept;
mod lock;
mod memory;
mod overlay;
mod prefetching;
mod signature;
mod system;
mod usage;
mod window;

pub use device::{Device, Trouble};
pub use error::{DeviceError, Operation, check_call};
pub use file::{Access, FileDevice};
pub use kept::{KeptState, StateEnd};
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use prefetching::PrefetchingDevice;
pub use signature::{Purpose, Signature};
#[cfg(target_os = "linux")]
pub use system::{KernelMount, StandIn, parse_device_number};
pub use system::{now, partition_node};
pub use usage::{InUse, Link, has_writer, in_use};
pub use window::Window;
