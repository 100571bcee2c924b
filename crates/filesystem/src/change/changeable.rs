//! An inode that can change.

use std::sync::Arc;

use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::live::inode::LiveInode;
use crate::live::subvolume::LiveSubvolume;

/// An inode of a file system that is open for writing, with what its changes need.
#[derive(Clone, Copy)]
pub(crate) struct Changeable<'a> {
    pub(crate) core: &'a Core,
    pub(crate) writer: &'a Writer,
    pub(crate) subvolume: &'a LiveSubvolume,
    pub(crate) live: &'a Arc<LiveInode>,
}
