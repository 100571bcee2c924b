//! An image in memory that is damaged over and over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use larder::device::{Device, DeviceError, MemoryDevice};
use larder_format::item::RootItem;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{FormatError, Header, ItemType, Logical, Node, Superblock};
use zerocopy::{FromBytes, IntoBytes};

const PIECE_BYTES: usize = 64 << 10;
/// Bytes of one patch in a target's input: block, offset in it, length, and new bytes.
const PATCH_BYTES: usize = 13;

/// A file system of one device, with the places of its tree blocks.
#[derive(Debug)]
pub struct Image {
    device: MemoryDevice,
    superblock: Box<Superblock>,
    /// Every copy of every block that can be reached from the superblock.
    blocks: Vec<Block>,
    /// Blocks of logs, which a power cut left; empty without logs.
    log_blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: Vec<u8>,
    offsets: Vec<u64>,
}

/// Why an image cannot be fuzzed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The memory device fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It is not a btrfs.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Blocks by address and generation, with all their places.
type BlocksByAddress = BTreeMap<(Logical, u64), Block>;

impl Image {
    /// Reads a sound image of one device into memory; zeros take no memory.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let file = File::open(path)?;
        let len_bytes = file.metadata()?.len();
        let device = MemoryDevice::new("fuzzed", len_bytes);
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, OFFSETS[0].0)?;
        let superblock = Superblock::parse(&bytes, OFFSETS[0])?;
        let mut found = BlocksByAddress::new();
        let mut piece = vec![0; PIECE_BYTES];
        for start in (0..len_bytes).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min((len_bytes - start) as usize)];
            file.read_exact_at(piece, start)?;
            if piece.iter().any(|byte| *byte != 0) {
                device.write_at(piece, start)?;
                collect(&superblock, piece, start, &mut found);
            }
        }
        let generation = superblock.generation.get();
        let trees = [
            (superblock.root(), generation),
            (superblock.chunk_root(), superblock.chunk_root_generation.get()),
        ];
        let blocks = reachable(trees.to_vec(), &mut found);
        // Logs belong to the transaction that the power cut ended.
        let log = (Logical(superblock.log_root.get()), generation + 1);
        let log_blocks = reachable(vec![log], &mut found);
        Ok(Self { device, superblock, blocks, log_blocks })
    }

    /// The unchanged image.
    pub fn sound(&self) -> Arc<dyn Device> {
        Arc::new(self.device.snapshot())
    }

    /// A copy of the image with `patches` applied, and valid checksums in the changed blocks.
    pub(crate) fn patched(&self, patches: &[u8]) -> Arc<dyn Device> {
        let device = self.device.snapshot();
        for patch in patches.chunks_exact(PATCH_BYTES) {
            let (target, rest) = patch.split_at(2);
            let target = usize::from(u16::from_le_bytes([target[0], target[1]]));
            // One in sixteen hits the superblock, the others any block.
            if target.is_multiple_of(16) {
                self.patch_superblock(&device, rest);
            } else {
                self.patch_block(&device, &self.blocks[target % self.blocks.len()], rest);
            }
        }
        Arc::new(device)
    }

    /// A copy of the image, which has logs, with `patches` applied to them.
    ///
    /// # Panics
    /// When it has none.
    pub(crate) fn with_patched_log(&self, patches: &[u8]) -> Arc<dyn Device> {
        let device = self.device.snapshot();
        for patch in patches.chunks_exact(PATCH_BYTES) {
            let (target, rest) = patch.split_at(2);
            let target = usize::from(u16::from_le_bytes([target[0], target[1]]));
            let block = &self.log_blocks[target % self.log_blocks.len()];
            // Most of a block is unused: patch the used part.
            let used: Vec<usize> =
                (0..block.bytes.len()).filter(|at| block.bytes[*at] != 0).collect();
            let at = used[usize::from(u16::from_le_bytes([rest[0], rest[1]])) % used.len()] as u16;
            let rest = [&at.to_le_bytes(), &rest[2..]].concat();
            self.patch_block(&device, block, &rest);
        }
        Arc::new(device)
    }

    fn patch_superblock(&self, device: &MemoryDevice, patch: &[u8]) {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(&mut bytes, OFFSETS[0].0).expect("every device reaches its superblock");
        overwrite(&mut bytes, patch);
        let superblock = Superblock::mut_from_bytes(&mut bytes).expect("the right size");
        superblock.csum_type = self.superblock.csum_type;
        superblock.update_checksum();
        device.write_at(superblock.as_bytes(), OFFSETS[0].0).expect("memory takes it");
    }

    fn patch_block(&self, device: &MemoryDevice, block: &Block, patch: &[u8]) {
        let mut bytes = vec![0; block.bytes.len()];
        device.read_at(&mut bytes, block.offsets[0]).expect("the block was found there");
        overwrite(&mut bytes, patch);
        let checksum = self.superblock.checksum_type().compute_block(&bytes).padded();
        Header::mut_from_prefix(&mut bytes).expect("longer than a header").0.csum = checksum;
        for offset in &block.offsets {
            device.write_at(&bytes, *offset).expect("memory takes it");
        }
    }

    /// Tree blocks, at most `most` of each tree and level.
    pub fn blocks(&self, most: usize) -> Vec<Vec<u8>> {
        let mut counts = BTreeMap::new();
        let wanted = |block: &&Block| {
            let header = header(&block.bytes);
            let count = counts.entry((header.owner.get(), header.level)).or_insert(0);
            *count += 1;
            *count <= most
        };
        self.blocks.iter().filter(wanted).map(|block| block.bytes.clone()).collect()
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes that are not zero, in pages.
    pub fn allocated_bytes(&self) -> u64 {
        self.device.allocated_bytes()
    }
}

/// Overwrites up to eight bytes, as the patch says.
fn overwrite(bytes: &mut [u8], patch: &[u8]) {
    let at = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % bytes.len();
    let len = (usize::from(patch[2]) % 8 + 1).min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&patch[3..3 + len]);
}

fn header(bytes: &[u8]) -> &Header {
    Header::ref_from_prefix(bytes).expect("longer than a header").0
}

fn collect(superblock: &Superblock, piece: &[u8], start: u64, found: &mut BlocksByAddress) {
    let (checksum, uuid) = (superblock.checksum_type(), superblock.metadata_uuid());
    for (number, bytes) in piece.chunks_exact(superblock.nodesize.get() as usize).enumerate() {
        let header = header(bytes);
        if header.fsid() == uuid
            && checksum.compute_block(bytes).as_bytes() == &header.csum[..checksum.size()]
        {
            let offset = start + (number * bytes.len()) as u64;
            found
                .entry((header.bytenr(), header.generation.get()))
                .or_insert_with(|| Block { bytes: bytes.to_vec(), offsets: Vec::new() })
                .offsets
                .push(offset);
        }
    }
}

/// Follows all pointers from these on.
fn reachable(mut pending: Vec<(Logical, u64)>, found: &mut BlocksByAddress) -> Vec<Block> {
    let mut blocks = Vec::new();
    while let Some(pointer) = pending.pop() {
        // Removed, since shared blocks are reached more than once.
        let Some(block) = found.remove(&pointer) else { continue };
        let Ok(node) = Node::parse(&block.bytes) else { continue };
        if node.is_leaf() {
            let roots = node.iter_items().filter(|item| item.0.item_type == ItemType::ROOT_ITEM);
            let roots = roots.filter_map(|item| RootItem::parse(item.1).ok());
            pending.extend(roots.map(|root| (root.bytenr(), root.generation.get())));
        } else {
            let children = node.key_pointers().iter();
            pending.extend(children.map(|child| (child.blockptr(), child.generation.get())));
        }
        blocks.push(block);
    }
    blocks
}
