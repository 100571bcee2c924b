//! The handles that callers have. All that they do lies in the folders of the nouns.

pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod filesystem;
pub(crate) mod inode;
pub(crate) mod last_handle;
pub(crate) mod subvolume;
