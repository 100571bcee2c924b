//! What items say of inodes and subvolumes, decoded. Nothing here reads a tree.

pub(crate) mod acl;
pub(crate) mod attribute;
pub(crate) mod extent;
pub(crate) mod id;
pub(crate) mod links;
pub(crate) mod metadata;
pub(crate) mod new;
pub(crate) mod property;
pub(crate) mod relative;
pub(crate) mod shown_extent;
pub(crate) mod subvolume_info;
