//! Inode items, in any tree.

use larder_format::item::{FileType, InodeFlags, InodeItem};

use crate::blocks::Item;
use crate::context::Context;
use crate::evidence::InodeEvidence;

const KNOWN_FLAGS: InodeFlags = InodeFlags::from_bits_retain(0xfff)
    .union(InodeFlags::ROOT_ITEM_INIT)
    .union(InodeFlags::RO_VERITY);

/// In a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// Checks the fields of an inode item one by one.
pub(crate) fn check(context: &Context<'_>, item: &Item<'_>, inode: &InodeItem) {
    let latest = context.generation().saturating_add(1);
    let mode = inode.mode.get();
    let file_type = FileType::from_mode(mode);
    let unknown = inode.flags().difference(KNOWN_FLAGS).bits();
    let find = |evidence: InodeEvidence| item.find(context, evidence);
    if file_type.is_none() || mode & !0o177_777 != 0 {
        find(InodeEvidence::Mode { found: mode });
    }
    if inode.generation.get() > latest || inode.transid.get() > latest {
        let (generation, transid) = (inode.generation.get(), inode.transid.get());
        find(InodeEvidence::Generations { generation, transid });
    }
    for time in [inode.atime, inode.ctime, inode.mtime] {
        if time.nsec.get() >= NANOSECONDS {
            find(InodeEvidence::Nanoseconds { found: time.nsec.get() });
        }
    }
    if unknown != 0 {
        find(InodeEvidence::UnknownFlags { found: unknown });
    }
    let immutable = inode.flags().intersection(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    if file_type == Some(FileType::Symlink) && !immutable.is_empty() {
        find(InodeEvidence::SymlinkFlags { found: immutable });
    }
    if file_type == Some(FileType::Directory) && inode.nlink.get() > 1 {
        find(InodeEvidence::DirectoryLinks { found: inode.nlink.get() });
    }
}
