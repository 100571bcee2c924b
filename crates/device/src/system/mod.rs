//! What an operating system offers for files and devices. The rest of the crate is the same on all.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{
    Identity, NOT_STORAGE, backing_path, discard, drop_cache, find_use, is_left, is_lent, open,
    sector_bytes, signature, will_need,
};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{now, partition_node};
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    Identity, NOT_STORAGE, backing_path, discard, drop_cache, find_use, is_left, is_lent, open,
    sector_bytes, signature, will_need,
};
#[cfg(target_os = "linux")]
pub use linux::{KernelMount, StandIn, now, parse_device_number, partition_node};
