//! Linux: block devices, loop devices, and the kernel's own view of their uses.

mod blkid;
mod block;
mod clock;
mod file;
mod identity;
mod ioctl;
mod lent;
mod loops;
mod mount_table;
mod mounts;
mod stand_in;
mod usage;

pub(crate) use blkid::signature;
pub use clock::now;
pub(crate) use file::{NOT_STORAGE, discard, drop_cache, open, sector_bytes, will_need};
pub(crate) use identity::Identity;
pub(crate) use lent::{is_left, is_lent};
pub(crate) use loops::backing_path;
pub use mount_table::{KernelMount, parse_device_number};
pub use stand_in::StandIn;
pub(crate) use usage::find_use;
pub use usage::partition_node;
