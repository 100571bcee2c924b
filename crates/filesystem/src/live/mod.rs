//! Inodes and subvolumes in memory, of a file system that is open for writing, and tables of them.

pub(crate) mod delayed;
pub(crate) mod deleted_subvolumes;
pub(crate) mod dirty_inodes;
pub(crate) mod ids;
pub(crate) mod inherited;
pub(crate) mod inode;
pub(crate) mod logged_inodes;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod opens;
pub(crate) mod orphans;
pub(crate) mod pending_snapshots;
pub(crate) mod renamed_subvolumes;
pub(crate) mod send_guards;
pub(crate) mod subvolume;
pub(crate) mod sync_queue;
pub(crate) mod table;
