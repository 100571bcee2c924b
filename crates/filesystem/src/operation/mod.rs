//! What an operation takes before it changes anything: locks, a handle, space.
//!
//! An [`InodeChange`](inode_change::InodeChange), or a [`FileChange`](crate::change::file_change::FileChange) for
//! data, is the proof that inodes may be changed now: its constructor takes all of that, and its
//! fields hold it.

pub(crate) mod data_reservation;
pub(crate) mod inode_change;
pub(crate) mod limits;
