//! Directories: finding a name by its hash, listing names by their index, changing names.
//!
//! # Invariants
//! - A directory is reached only through the entry that its own reference names; so is a subvolume.
//!   From a subvolume's root each directory is therefore reached in one way only: no image can make
//!   a walk over all entries go on forever.

pub(crate) mod create;
pub(crate) mod entries;
pub(crate) mod entry;
mod hashed;
pub(crate) mod link;
pub(crate) mod listed;
pub(crate) mod lookup;
pub(crate) mod path;
pub(crate) mod rename;
pub(crate) mod walk;
pub(crate) mod whole;
