//! Snapshots of file systems that are mounted, by larder or by the kernel: what is asked for is the same, who
//! does it is not. A mount of larder's has its own channel for that ([`larder_ioctl::channel`]).

mod receive;
mod snapshot;

pub use receive::receive_mounted;
pub use snapshot::MountedSnapshot;
