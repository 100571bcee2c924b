//! How requests come from the kernel and replies go back: through [`/dev/fuse`](dev_fuse) and,
//! where the kernel offers it, mostly through [rings of io_uring](io_uring).

mod awake;
mod away;
mod block;
mod busy_poll;
mod dev_fuse;
pub(crate) mod id_maps;
mod in_progress;
mod io_uring;
mod kernel;
mod mapping;
mod mount;
mod pool;
mod program;
mod readahead;
mod readiness;
mod remount;
mod serving;
mod soon;
mod superblock;
mod tree;
mod version;

pub(crate) use dev_fuse::DevFuse;
#[cfg(test)]
pub(crate) use kernel::MustNotWait;
pub(crate) use kernel::{Notify, Tell};
pub(crate) use mount::{Mounted, SyncCalls, mount, mount_in_no_place, unmount_own};
pub use mount::{end, unmount};
pub use remount::remount;
pub(crate) use serving::{Handler, Limits, Transport};
pub(crate) use superblock::{Superblock, attributes};
pub use tree::{Tree, can_mount_parts};
