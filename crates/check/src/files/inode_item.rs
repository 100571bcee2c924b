//! Inode items, in any tree.

use larder_format::item::{FileType, InodeFlags, InodeItem};

use crate::blocks::Item;
use crate::context::Context;
use crate::report::Kind;

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
    let find = |message: std::fmt::Arguments<'_>| item.find(context, Kind::InodeItem, message);
    if file_type.is_none() || mode & !0o177_777 != 0 {
        find(format_args!("its mode is {mode:o}"));
    }
    if inode.generation.get() > latest || inode.transid.get() > latest {
        let InodeItem { generation, transid, .. } = inode;
        find(format_args!("made in generation {generation} and changed in {transid}"));
    }
    for time in [inode.atime, inode.ctime, inode.mtime] {
        if time.nsec.get() >= NANOSECONDS {
            find(format_args!("one of its times has {} nanoseconds", time.nsec));
        }
    }
    if unknown != 0 {
        find(format_args!("it has unknown flags {unknown:#x}"));
    }
    let immutable = inode.flags().intersection(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    if file_type == Some(FileType::Symlink) && !immutable.is_empty() {
        find(format_args!("a symbolic link with the flags {immutable:?}"));
    }
    if file_type == Some(FileType::Directory) && inode.nlink.get() > 1 {
        find(format_args!("a directory with {} links", inode.nlink));
    }
}
