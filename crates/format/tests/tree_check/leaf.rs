//! Leaves, made from items.

use larder_format::node::{HEADER_FLAG_WRITTEN, HEADER_SIZE, Header, ITEM_HEADER_SIZE, ItemHeader};
use larder_format::tree_check::Context;
use larder_format::{Key, Superblock};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) const NODESIZE: usize = 16384;

pub(crate) type Item = (Key, Vec<u8>);

/// A superblock with the features of the image that the kernel mounts.
pub(crate) fn superblock() -> Box<Superblock> {
    let mut superblock = Superblock::zeroed();
    superblock.sectorsize = 4096.into();
    superblock.nodesize = (NODESIZE as u32).into();
    // MIXED_BACKREF, BIG_METADATA, EXTENDED_IREF, SKINNY_METADATA, NO_HOLES.
    superblock.incompat_flags = 0x361.into();
    superblock
}

pub(crate) fn context() -> Context {
    Context::new(&superblock())
}

pub(crate) fn header(owner: u64) -> Header {
    let mut header = Header::new_zeroed();
    header.flags = HEADER_FLAG_WRITTEN.into();
    header.owner = owner.into();
    header
}

/// A leaf that starts with `header` and holds `items`, which ascend.
pub(crate) fn leaf(mut header: Header, items: &[Item]) -> Vec<u8> {
    header.nritems = (items.len() as u32).into();
    let mut bytes = vec![0; NODESIZE];
    bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    let mut end = NODESIZE - HEADER_SIZE;
    for (slot, (key, data)) in items.iter().enumerate() {
        end -= data.len();
        let item = ItemHeader {
            key: (*key).into(),
            offset: (end as u32).into(),
            size: (data.len() as u32).into(),
        };
        bytes[HEADER_SIZE + slot * ITEM_HEADER_SIZE..][..ITEM_HEADER_SIZE]
            .copy_from_slice(item.as_bytes());
        bytes[HEADER_SIZE + end..][..data.len()].copy_from_slice(data);
    }
    bytes
}
