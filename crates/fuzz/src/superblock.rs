//! The superblock.

use larder_format::superblock::{MAGIC, OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Physical, Superblock, feature};
use zerocopy::{FromBytes, IntoBytes};

/// Reads a superblock as it is, and once more with valid magic, place and checksum: no fuzzer finds
/// a checksum.
pub fn superblock(bytes: &[u8]) {
    for offset in OFFSETS {
        read(bytes, offset);
    }
    let mut whole = [0; SUPERBLOCK_SIZE];
    let len = bytes.len().min(SUPERBLOCK_SIZE);
    whole[..len].copy_from_slice(&bytes[..len]);
    let view = Superblock::mut_from_bytes(&mut whole).expect("the size of a superblock");
    view.magic = MAGIC.into();
    view.bytenr = OFFSETS[0].0.into();
    view.csum_type = (view.csum_type.get() % 4).into();
    view.update_checksum();
    read(view.as_bytes(), OFFSETS[0]);
}

fn read(bytes: &[u8], offset: Physical) {
    let Ok(superblock) = Superblock::parse(bytes, offset) else { return };
    let _ = feature::check_readable(&superblock);
    let _ = feature::check_writable(&superblock);
    let _ = (superblock.label(), superblock.metadata_uuid());
    superblock.system_chunks().for_each(drop);
    let _ = larder_format::tree_check::Context::new(&superblock);
}
