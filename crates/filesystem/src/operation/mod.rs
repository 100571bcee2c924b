//! What an operation takes before it changes anything: locks, a handle, space.

pub(crate) mod data_reservation;
pub(crate) mod file_change;
pub(crate) mod inode_change;
pub(crate) mod limits;
pub(crate) mod locks;
