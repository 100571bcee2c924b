//! The compression property, `btrfs.compression`, and the flags of an inode that go with it.

use larder_format::compression::Algorithm;
use larder_format::item::{InodeFlags, InodeItem};

/// The extended attribute that holds it.
pub(crate) const COMPRESSION: &[u8] = b"btrfs.compression";
/// The meaning of the flag COMPRESS alone, unless the mount compresses in another way.
pub(crate) const USUAL_COMPRESSION: Algorithm = Algorithm::Zlib;

const ALGORITHMS: [&[u8]; 3] = [b"zlib", b"lzo", b"zstd"];

/// The flags that a value means; `None` for an invalid value. Anything may follow the name of an
/// algorithm: `zstd:3`.
pub(crate) fn compression_flags(value: &[u8]) -> Option<InodeFlags> {
    match value {
        b"" => Some(InodeFlags::empty()),
        b"no" | b"none" => Some(InodeFlags::NOCOMPRESS),
        _ => inheritable(value).map(|_| InodeFlags::COMPRESS),
    }
}

/// What new inodes inherit of a directory's value: the name of the algorithm.
pub(crate) fn inheritable(value: &[u8]) -> Option<&'static [u8]> {
    ALGORITHMS.into_iter().find(|algorithm| value.starts_with(algorithm))
}

/// Gives an inode the flags that a value means, and removes the others.
pub(crate) fn set_compression(item: &mut InodeItem, value: &[u8]) {
    let both = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
    let meant = compression_flags(value).unwrap_or(InodeFlags::empty());
    item.flags = (item.flags() & !both | meant).bits().into();
}

/// Whether data can be compressed: not if it is overwritten in place or has no checksums.
pub(crate) fn can_compress(flags: InodeFlags) -> bool {
    !flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM)
}
