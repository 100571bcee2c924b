//! Files and trees by their paths from the root of a subvolume.

pub(crate) mod by_path;
pub(crate) mod content;
