//! Flags of inodes that users set (`chattr`).

use larder_format::item::{InodeFlags, InodeItem};

use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;
use crate::item::property::{COMPRESSION, USUAL_COMPRESSION, can_compress};
use crate::xattr::set::XattrChange;

/// Flags that can be set and cleared.
pub(crate) const CHANGEABLE: InodeFlags = OF_EVERYTHING
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::NOCOMPRESS)
    .union(InodeFlags::NODATACOW);
/// The flags that mean something for inodes that are neither file nor directory.
const OF_EVERYTHING: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// Checks that the flags `wanted` are possible, also after `before`: a change from compressing to
/// overwriting in place, or back, needs the old flag cleared first.
fn exclude_each_other(before: InodeFlags, wanted: InodeFlags) -> bool {
    const ABOUT_COMPRESSION: InodeFlags = InodeFlags::COMPRESS.union(InodeFlags::NOCOMPRESS);
    let in_place = InodeFlags::NODATACOW;
    let compressed = InodeFlags::COMPRESS;
    wanted.contains(compressed) && wanted.intersects(InodeFlags::NOCOMPRESS | in_place)
        || wanted.contains(in_place) && before.intersects(ABOUT_COMPRESSION)
        || before.contains(in_place) && wanted.intersects(ABOUT_COMPRESSION)
}

/// Gives the item of this inode the flags `wanted`. Returns how its compression property changes
/// with them.
pub(crate) fn change_flags(
    inode: &Inode,
    item: &mut InodeItem,
    wanted: InodeFlags,
    generation: u64,
) -> Result<XattrChange> {
    if !CHANGEABLE.contains(wanted) {
        return Err(Error::UnknownFlags);
    }
    let before = item.flags();
    if exclude_each_other(before, wanted) {
        return Err(Error::Invalid("flags that exclude each other"));
    }
    let file_type = inode.file_type();
    let has_meaning = match file_type {
        FileType::Directory => CHANGEABLE,
        FileType::Regular => CHANGEABLE - InodeFlags::DIRSYNC,
        _ => OF_EVERYTHING,
    };
    let mut after = (before - CHANGEABLE) | (wanted & has_meaning);
    if file_type == FileType::Regular {
        // The flag tells how existing data was written.
        if item.size.get() > 0 {
            after.set(InodeFlags::NODATACOW, before.contains(InodeFlags::NODATACOW));
        } else {
            after.set(InodeFlags::NODATASUM, wanted.contains(InodeFlags::NODATACOW));
        }
    }
    let is_compressed = after.contains(InodeFlags::COMPRESS);
    if is_compressed && !can_compress(after) {
        return Err(Error::Invalid("data that is overwritten in place is not compressed"));
    }
    item.flags = after.bits().into();
    // As in the kernel: the flag alone stands for the algorithm of the mount.
    let general = *inode.writer()?.compression.read();
    let algorithm = general.map_or(USUAL_COMPRESSION, |general| general.compression.algorithm());
    let value = is_compressed.then_some(algorithm.name().as_bytes());
    inode.plan_xattr(COMPRESSION, value, generation)
}
