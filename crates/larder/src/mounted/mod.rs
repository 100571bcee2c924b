//! File systems that are mounted, by larder or by the kernel, and snapshots of them: the requests
//! are the same, and a server or the kernel answers. A mount of larder has a channel of its own for
//! snapshots ([`larder_ioctl::channel`]).

mod changes;
mod estimate;
mod filesystem;
mod receive;
mod snapshot;
mod state;
mod walk;

pub use changes::{ChangeEvent, MountedChanges};
pub use filesystem::MountedFilesystem;
pub use receive::receive_mounted;
pub use snapshot::MountedSnapshot;
pub use walk::{MountedWalk, WalkOptions, Walked};
