//! Tree blocks, found at every possible place of an image file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Header, Physical, Superblock};
use zerocopy::FromBytes;

/// A block with the right checksum and file system id, and its offset in the file.
pub(crate) struct Found {
    pub(crate) offset: Physical,
    pub(crate) bytes: Vec<u8>,
}

impl Found {
    pub(crate) fn header(&self) -> &Header {
        Header::ref_from_prefix(&self.bytes).expect("longer than a header").0
    }
}

pub(crate) fn read_superblock(device: &Path) -> Box<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    let file = File::open(device).expect("the image opens");
    file.read_exact_at(&mut bytes, OFFSETS[0].0).expect("a superblock is read");
    Superblock::parse(&bytes, OFFSETS[0]).expect("a sound superblock")
}

/// Calls `see` for every tree block on `device`, including unused ones.
pub(crate) fn for_each_block(device: &Path, superblock: &Superblock, mut see: impl FnMut(Found)) {
    const PIECE_BYTES: u64 = 1 << 20;
    let file = File::open(device).expect("the image opens");
    let len = file.metadata().expect("the image has a length").len();
    let nodesize = superblock.nodesize.get() as usize;
    let (uuid, checksum) = (superblock.metadata_uuid(), superblock.checksum_type());
    let mut piece = vec![0; PIECE_BYTES as usize];
    for start in (PIECE_BYTES..=len - PIECE_BYTES).step_by(PIECE_BYTES as usize) {
        file.read_exact_at(&mut piece, start).expect("the image is read");
        for at in (0..=piece.len() - nodesize).step_by(4096) {
            let bytes = &piece[at..at + nodesize];
            let header = Header::ref_from_prefix(bytes).expect("longer than a header").0;
            let is_block = header.fsid() == uuid
                && checksum.compute_block(bytes).as_bytes() == &header.csum[..checksum.size()];
            if is_block {
                see(Found { offset: Physical(start + at as u64), bytes: bytes.to_vec() });
            }
        }
    }
}
