//! Superblocks, made again for devices that have none.
//!
//! A tree block says its logical address, a sector of data has a checksum, and the chunks say on
//! which device each lies: so what is on a device says which one it is. The chunk tree has its item.
//! If no device has a superblock, blocks also say what it would: their uuid, length and checksums,
//! the newest roots, and the features that their items have.
//!
//! # Invariants
//! - A device gets a superblock only if something on it lies where the device of that id has it, and
//!   no more of it where another has it.
//! - No device of the file system is taken twice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use larder_device::Device;
use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::item::{DevItem, DirEntries, FileExtent};
use larder_format::node::{
    BACKREF_REV_MIXED, BACKREF_REV_SHIFT, HEADER_FLAG_WRITTEN, HEADER_SIZE, MAX_LEVELS,
};
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CHUNK_TREE, CSUM_TREE, FREE_SPACE_TREE, FS_TREE, ROOT_TREE, ROOT_TREE_DIR,
};
use larder_format::superblock::{DEVICE_RESERVED_BYTES, MAGIC};
use larder_format::{
    BlockGroupFlags, ChecksumType, Header, ItemType, Logical, Node, Physical, Superblock,
};
use larder_volume::chunk::Content;
use larder_volume::{Chunk, scan};
use zerocopy::FromBytes;

use crate::blocks::{Block, Blocks};
use crate::checksums::Checksums;
use crate::chunks::Said;
use crate::evidence::Evidence;
use crate::missing::Missing;
use crate::progress::Tracker;
use crate::trees::Roots;
use crate::{RescueError, scan as scanning, sequence};

const NODE_SIZES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
/// The least sector: every tree block begins with one.
const SECTOR_BYTES: usize = 4096;
/// Bytes that are read at a time.
const WINDOW_BYTES: usize = 2 << 20;
/// Blocks of a file system whose length and checksum are found out.
const MOST_SAMPLES: usize = 64;

/// A superblock for each device that has none, by its index; none if all have one.
///
/// # Errors
/// If what is left does not say enough, or the caller ended the work.
pub(crate) fn made_again(
    devices: &[Arc<dyn Device>],
    tracker: &Tracker<'_>,
) -> Result<Vec<(usize, Box<Superblock>)>, RescueError> {
    let (mut nameless, mut known) = (Vec::new(), Vec::new());
    for (index, device) in devices.iter().enumerate() {
        match scan(device.as_ref()) {
            Ok(scanned) => known.push(scanned.superblock),
            Err(error) => nameless.push((index, error)),
        }
    }
    if nameless.is_empty() {
        return Ok(Vec::new());
    }
    let newest = known.iter().max_by_key(|superblock| superblock.generation.get()).cloned();
    let is_guessed = newest.is_none();
    let Some(mut template) = newest.or_else(|| guess(devices)) else {
        return Err(nameless.remove(0).1.into());
    };
    let evidence = Evidence::without_chunks(devices, template.clone());
    let (found, _) = scanning::scan(&evidence, tracker)?;
    if is_guessed {
        name_roots(&mut template, &found);
    }
    let evidence = Arc::new(Evidence::without_chunks(devices, template.clone()));
    let blocks = Blocks::new(evidence, found);
    let said = Said::of_chunk_tree(&blocks, &mut Missing::new(&blocks));
    if is_guessed {
        add_features(&mut template, &blocks, &said);
    }
    let taken: BTreeSet<u64> = known.iter().map(|it| it.dev_item.devid.get()).collect();
    let indexes: Vec<usize> = nameless.iter().map(|(index, _)| *index).collect();
    let devids = assigned(votes(&blocks, &said.chunks, &indexes), &taken);
    let mut made = Vec::new();
    for (index, error) in nameless {
        let item = devids.get(&index).and_then(|devid| said.devices.get(devid));
        let Some(item) = item else { return Err(RescueError::Superblock(error)) };
        let mut superblock = template.clone();
        superblock.dev_item = *item;
        made.push((index, superblock));
    }
    Ok(made)
}

/// How much of what lies on a device belongs there if it has an id: by index and id.
type Votes = BTreeMap<(usize, u64), usize>;

/// The votes of tree blocks and of sectors with checksums, for these devices.
fn votes(blocks: &Blocks, chunks: &[Chunk], devices: &[usize]) -> Votes {
    let mut votes = Votes::new();
    for block in blocks.all().iter().filter(|block| devices.contains(&(block.member as usize))) {
        let Some(chunk) = chunks.iter().find(|it| it.contains(Logical(block.logical))) else {
            continue;
        };
        let devids: BTreeSet<u64> = chunk.stripes().iter().map(|stripe| stripe.devid).collect();
        let lies_on = |devid: &u64| {
            let mut contents = chunk.contents_at(*devid, Physical(block.physical));
            contents.any(|content| content == Content::Data(Logical(block.logical)))
        };
        for devid in devids.into_iter().filter(lies_on) {
            *votes.entry((block.member as usize, devid)).or_default() += 1;
        }
    }
    let mut missing = Missing::new(blocks);
    let roots = Roots::of(blocks, &mut missing);
    let checksums = Checksums::of(blocks, roots.tree(blocks, &mut missing, CSUM_TREE));
    let mut sector = vec![0; blocks.evidence.sectorsize()];
    for chunk in chunks.iter().filter(|chunk| chunk.flags().contains(BlockGroupFlags::DATA)) {
        for sample in sequence::samples(&checksums, chunk) {
            let stripe = &chunk.stripes()[sample.stripe];
            for index in devices {
                let device = &blocks.evidence.members[*index].device;
                let is_read = device.read_at(&mut sector, stripe.physical.0 + sample.offset);
                let is_it = || checksums.kind().compute(&sector).as_bytes() == sample.checksum;
                if is_read.is_ok() && is_it() {
                    *votes.entry((*index, stripe.devid)).or_default() += 1;
                }
            }
        }
    }
    votes
}

/// The ids with most votes, each for one device, except those that are `taken`. Those with as many
/// votes are mirrors: either can be the other.
fn assigned(votes: Votes, taken: &BTreeSet<u64>) -> BTreeMap<usize, u64> {
    let mut votes: Vec<((usize, u64), usize)> = votes.into_iter().collect();
    votes.sort_by_key(|(_, count)| Reverse(*count));
    let (mut taken, mut devids) = (taken.clone(), BTreeMap::new());
    for ((index, devid), _) in votes {
        if !devids.contains_key(&index) && taken.insert(devid) {
            devids.insert(index, devid);
        }
    }
    devids
}

/// What may be tree blocks of one file system.
#[derive(Default)]
struct Candidate {
    count: u64,
    /// Some of them: index of the device, and address.
    samples: Vec<(usize, u64)>,
}

/// What the superblock of the file system with the most tree blocks says of these: its uuid, and
/// their length and checksum.
fn guess(devices: &[Arc<dyn Device>]) -> Option<Box<Superblock>> {
    let mut candidates: HashMap<[u8; 16], Candidate> = HashMap::new();
    let mut window = vec![0; WINDOW_BYTES];
    for (index, device) in devices.iter().enumerate() {
        for start in (DEVICE_RESERVED_BYTES..device.len_bytes()).step_by(WINDOW_BYTES) {
            let len = (device.len_bytes() - start).min(WINDOW_BYTES as u64) as usize;
            if device.read_at(&mut window[..len], start).is_err() {
                continue;
            }
            for (at, sector) in
                (start..).step_by(SECTOR_BYTES).zip(window[..len].chunks_exact(SECTOR_BYTES))
            {
                let header = Header::ref_from_bytes(&sector[..HEADER_SIZE]).expect("has its size");
                if may_be_header(header) {
                    let candidate = candidates.entry(header.fsid).or_default();
                    candidate.count += 1;
                    if candidate.samples.len() < MOST_SAMPLES {
                        candidate.samples.push((index, at));
                    }
                }
            }
        }
    }
    let (fsid, found) = candidates.into_iter().max_by_key(|(_, it)| it.count)?;
    let shape = |(index, at): &(usize, u64)| shape_at(devices[*index].as_ref(), *at);
    let mut shapes: BTreeMap<(usize, u16), usize> = BTreeMap::new();
    for (node_bytes, kind) in found.samples.iter().filter_map(shape) {
        *shapes.entry((node_bytes, kind.to_disk())).or_default() += 1;
    }
    let ((node_bytes, csum_type), _) = shapes.into_iter().max_by_key(|(_, count)| *count)?;
    let mut superblock = Superblock::zeroed();
    superblock.fsid = fsid;
    superblock.dev_item.fsid = fsid;
    superblock.flags = HEADER_FLAG_WRITTEN.into();
    superblock.magic = MAGIC.into();
    superblock.csum_type = csum_type.into();
    (superblock.nodesize, superblock.leafsize) =
        ((node_bytes as u32).into(), (node_bytes as u32).into());
    (superblock.sectorsize, superblock.stripesize) =
        ((SECTOR_BYTES as u32).into(), (SECTOR_BYTES as u32).into());
    superblock.root_dir_objectid = ROOT_TREE_DIR.into();
    Some(superblock)
}

fn may_be_header(header: &Header) -> bool {
    let flags = header.flags.get();
    header.fsid != [0; 16]
        && flags >> BACKREF_REV_SHIFT == BACKREF_REV_MIXED
        && flags & HEADER_FLAG_WRITTEN != 0
        && usize::from(header.level) < MAX_LEVELS
        && header.bytenr.get().is_multiple_of(SECTOR_BYTES as u64)
}

/// The length and the checksum with which there is a tree block.
fn shape_at(device: &dyn Device, at: u64) -> Option<(usize, ChecksumType)> {
    let most = (device.len_bytes() - at).min(NODE_SIZES[NODE_SIZES.len() - 1] as u64) as usize;
    let mut bytes = vec![0; most];
    device.read_at(&mut bytes, at).ok()?;
    let lengths = NODE_SIZES.into_iter().filter(|len| *len <= most);
    let mut shapes = lengths.flat_map(|len| ChecksumType::ALL.map(|kind| (len, kind)));
    shapes
        .find(|(len, kind)| kind.compute_block(&bytes[..*len]).as_bytes() == &bytes[..kind.size()])
}

/// Names the newest roots of the root tree and the chunk tree: a commit that changes a tree writes
/// its root, and every commit the root tree's.
fn name_roots(superblock: &mut Superblock, found: &[Block]) {
    let newest = |tree: u64| {
        let own = found.iter().filter(|block| block.owner == tree);
        own.max_by_key(|block| (block.generation, block.level, block.logical))
    };
    if let Some(root) = newest(ROOT_TREE) {
        superblock.root = root.logical.into();
        superblock.root_level = root.level;
        superblock.generation = root.generation.into();
    }
    if let Some(root) = newest(CHUNK_TREE) {
        superblock.chunk_root = root.logical.into();
        superblock.chunk_root_level = root.level;
        superblock.chunk_root_generation = root.generation.into();
    }
}

/// Adds the devices, the system chunks, and the features that items have. Features that only allow
/// something are added in any case.
fn add_features(superblock: &mut Superblock, blocks: &Blocks, said: &Said) {
    let mut incompat = IncompatFlags::MIXED_BACKREF
        | IncompatFlags::BIG_METADATA
        | IncompatFlags::EXTENDED_IREF
        | IncompatFlags::NO_HOLES;
    let mut compat_ro = CompatRoFlags::empty();
    for chunk in &said.chunks {
        let flags = chunk.flags();
        if flags.contains(BlockGroupFlags::DATA | BlockGroupFlags::METADATA) {
            incompat |= IncompatFlags::MIXED_GROUPS;
        }
        if chunk.has_parity() {
            incompat |= IncompatFlags::RAID56;
        }
        if flags.intersects(BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4) {
            incompat |= IncompatFlags::RAID1C34;
        }
    }
    let newest = |tree: u64| blocks.all().iter().any(|block| block.owner == tree);
    if newest(FREE_SPACE_TREE) {
        compat_ro |= CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
    }
    if newest(BLOCK_GROUP_TREE) {
        compat_ro |= CompatRoFlags::BLOCK_GROUP_TREE;
    }
    for leaf in blocks.all().iter().filter(|block| block.level == 0) {
        let Some(bytes) = blocks.read(&leaf.pointer()) else { continue };
        for (key, data) in Node::from_checked(&bytes).iter_items() {
            match key.item_type {
                ItemType::METADATA_ITEM => incompat |= IncompatFlags::SKINNY_METADATA,
                ItemType::VERITY_DESC_ITEM => compat_ro |= CompatRoFlags::VERITY,
                ItemType::EXTENT_DATA => incompat |= compression(data),
                ItemType::DIR_ITEM if key.objectid == ROOT_TREE_DIR => {
                    let mut entries = DirEntries::new(data).flatten();
                    if entries.any(|it| it.header.location.get().objectid != FS_TREE) {
                        incompat |= IncompatFlags::DEFAULT_SUBVOL;
                    }
                }
                _ => {}
            }
        }
    }
    superblock.incompat_flags = incompat.bits().into();
    superblock.compat_ro_flags = compat_ro.bits().into();
    if !compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE) {
        // No cache of any generation is valid.
        superblock.cache_generation = u64::MAX.into();
    }
    superblock.num_devices = (said.devices.len() as u64).into();
    let total_bytes = said.devices.values().map(|item: &DevItem| item.total_bytes.get());
    superblock.total_bytes = total_bytes.sum::<u64>().into();
    let chunks: Vec<Arc<Chunk>> = said.chunks.iter().cloned().map(Arc::new).collect();
    let array = larder_volume::chunk::system_chunk_array(&chunks, SECTOR_BYTES as u32);
    if array.len() <= superblock.sys_chunk_array.len() {
        superblock.sys_chunk_array[..array.len()].copy_from_slice(&array);
        superblock.sys_chunk_array_size = (array.len() as u32).into();
    }
}

fn compression(data: &[u8]) -> IncompatFlags {
    let kind = match FileExtent::parse(data) {
        Ok(FileExtent::Regular { header, .. } | FileExtent::Inline { header, .. }) => {
            header.compression
        }
        Err(_) => 0,
    };
    match kind {
        2 => IncompatFlags::COMPRESS_LZO,
        3 => IncompatFlags::COMPRESS_ZSTD,
        _ => IncompatFlags::empty(),
    }
}
