//! What the walk needs to know of an inode, in an image or in a mounted file system.

use std::ffi::OsString;

/// An inode, and how to go on from it.
pub trait Summable: Sized {
    /// What identifies it.
    fn id(&self) -> (u64, u64);
    fn is_directory(&self) -> bool;
    fn is_file(&self) -> bool;
    fn has_several_names(&self) -> bool;
    /// The names in a directory with their nodes, without those that are not in the file system.
    fn children(&self) -> anyhow::Result<Vec<(OsString, anyhow::Result<Self>)>>;
    /// Gives `add` each extent of a file that has space of its own.
    fn extents(&self, add: &mut dyn FnMut(Used) -> larder::Result<()>) -> anyhow::Result<()>;
}

/// An extent of a file that has space of its own.
pub struct Used {
    pub address: u64,
    pub len_bytes: u64,
    pub is_shared: bool,
}
