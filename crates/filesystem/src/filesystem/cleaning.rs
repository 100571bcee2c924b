//! Deleting inodes and subvolumes without a name.

use larder_format::objectid::DATA_RELOC_TREE;

use crate::commit::drop_tree::{drop_unused_subvolumes, resume_subvolume_deletions};
use crate::core::shared::Core;
use crate::error::Result;
use crate::handle::filesystem::Filesystem;
use crate::writeback::orphan_deletion::{delete_orphans, resume_orphans};

/// Deletes inodes and subvolumes that have no name and are not open. If that fails, they stay
/// listed.
pub(crate) fn delete_unlinked(core: &Core) {
    if let Some(writer) = core.try_writer() {
        delete_orphans(writer);
        drop_unused_subvolumes(writer);
    }
}

/// Completes deletions of inodes and subvolumes that a crash interrupted, also in read-only
/// subvolumes: an inode without a name is not part of their content. Neither is one by which the
/// kernel was moving data.
pub(crate) fn resume_deletions(filesystem: &Filesystem) -> Result<()> {
    let writer = filesystem.writer()?;
    for subvolume in filesystem.subvolumes() {
        let subvolume = subvolume?;
        if !subvolume.is_being_deleted {
            resume_orphans(writer, subvolume.id)?;
        }
    }
    resume_orphans(writer, DATA_RELOC_TREE)?;
    resume_subvolume_deletions(writer)
}
