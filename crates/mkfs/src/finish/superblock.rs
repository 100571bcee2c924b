//! The superblock.

use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::item::DevItem;
use larder_format::node::HEADER_FLAG_WRITTEN;
use larder_format::superblock::{BackupRoot, MAGIC};
use larder_format::{Superblock, compression, objectid};
use larder_volume::layout::DeviceSpace;
use zerocopy::FromZeros;

use super::{EarlierTrees, Plan, chunk_tree};
use crate::settings::{GENERATION, Settings};
use crate::source::Source;
use crate::space::Space;
use crate::tree::TreeRoot;

/// The item of a device with the chunks in `space`.
pub(crate) fn dev_item(space: &Space, device: &DeviceSpace, settings: &Settings) -> DevItem {
    let on_device = |group: &crate::space::BlockGroup| {
        let stripes = group.chunk.stripes().iter().filter(|stripe| stripe.devid == device.devid);
        stripes.count() as u64 * group.chunk.bytes_per_stripe()
    };
    let sector_size = settings.sector_size as u32;
    DevItem {
        devid: device.devid.into(),
        total_bytes: device.total_bytes.into(),
        bytes_used: space.groups().iter().map(on_device).sum::<u64>().into(),
        io_align: sector_size.into(),
        io_width: sector_size.into(),
        sector_size: sector_size.into(),
        uuid: device.uuid.into_bytes(),
        fsid: settings.fsid.into_bytes(),
        ..DevItem::new_zeroed()
    }
}

/// The fields of the superblock that depend on the content.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    pub(crate) source: &'a Source,
    pub(crate) earlier: &'a EarlierTrees,
    pub(crate) plan: &'a Plan,
    /// Whether any extent is compressed.
    pub(crate) compression_used: bool,
}

/// A superblock with the fields that depend on the settings.
pub(crate) fn new_superblock(settings: &Settings) -> Box<Superblock> {
    let mut superblock = Superblock::zeroed();
    let (node_size, sector_size) = (settings.node_size as u32, settings.sector_size as u32);
    superblock.fsid = settings.fsid.into_bytes();
    superblock.flags = HEADER_FLAG_WRITTEN.into();
    superblock.magic = MAGIC.into();
    superblock.generation = GENERATION.into();
    superblock.root_dir_objectid = objectid::ROOT_TREE_DIR.into();
    superblock.num_devices = (settings.device_uuids.len() as u64).into();
    superblock.sectorsize = sector_size.into();
    superblock.nodesize = node_size.into();
    superblock.leafsize = node_size.into();
    superblock.stripesize = sector_size.into();
    superblock.chunk_root_generation = GENERATION.into();
    superblock.compat_ro_flags = settings.compat_ro_flags().bits().into();
    superblock.incompat_flags = settings.incompat_flags().bits().into();
    superblock.csum_type = settings.checksum.to_disk().into();
    superblock.label[..settings.label.len()].copy_from_slice(settings.label.as_bytes());
    superblock.uuid_tree_generation = GENERATION.into();
    if !settings.compat_ro_flags().contains(CompatRoFlags::FREE_SPACE_TREE) {
        // There is no v1 cache, so none of any generation is valid.
        superblock.cache_generation = u64::MAX.into();
    }
    superblock
}

/// Sets the roots of trees, and the features that depend on the content.
pub(crate) fn add_content(superblock: &mut Superblock, settings: &Settings, content: Content<'_>) {
    let mut flags = superblock.incompat_flags();
    let algorithm = settings.compression.map(compression::Compression::algorithm);
    match algorithm.filter(|_| content.compression_used) {
        Some(compression::Algorithm::Lzo) => flags |= IncompatFlags::COMPRESS_LZO,
        Some(compression::Algorithm::Zstd) => flags |= IncompatFlags::COMPRESS_ZSTD,
        Some(compression::Algorithm::Zlib) | None => {}
    }
    if content.source.default != 0 {
        flags |= IncompatFlags::DEFAULT_SUBVOL;
    }
    superblock.incompat_flags = flags.bits().into();
    set_roots(superblock, settings, content.earlier, content.plan);
}

fn set_roots(
    superblock: &mut Superblock,
    settings: &Settings,
    earlier: &EarlierTrees,
    plan: &Plan,
) {
    let planned = |owner| plan.root_of(owner).expect("every file system has this tree");
    let root = planned(objectid::ROOT_TREE);
    let chunk_root = planned(objectid::CHUNK_TREE);
    let space = &plan.space;
    let total_bytes = space.devices().iter().map(|device| device.total_bytes).sum::<u64>();
    superblock.root = root.bytenr.0.into();
    superblock.root_level = root.level;
    superblock.chunk_root = chunk_root.bytenr.0.into();
    superblock.chunk_root_level = chunk_root.level;
    superblock.total_bytes = total_bytes.into();
    superblock.bytes_used = space.used_bytes().into();
    let array = chunk_tree::system_chunks(space, settings);
    superblock.sys_chunk_array_size = (array.len() as u32).into();
    superblock.sys_chunk_array[..array.len()].copy_from_slice(&array);
    let extent_root = planned(objectid::EXTENT_TREE);
    let dev_root = planned(objectid::DEV_TREE);
    let fs_root: TreeRoot = earlier.subvolumes[0].root;
    let csum_root = earlier.checksums;
    superblock.super_roots[0] = BackupRoot {
        tree_root: root.bytenr.0.into(),
        tree_root_gen: GENERATION.into(),
        chunk_root: chunk_root.bytenr.0.into(),
        chunk_root_gen: GENERATION.into(),
        extent_root: extent_root.bytenr.0.into(),
        extent_root_gen: GENERATION.into(),
        fs_root: fs_root.bytenr.0.into(),
        fs_root_gen: GENERATION.into(),
        dev_root: dev_root.bytenr.0.into(),
        dev_root_gen: GENERATION.into(),
        csum_root: csum_root.bytenr.0.into(),
        csum_root_gen: GENERATION.into(),
        total_bytes: total_bytes.into(),
        bytes_used: space.used_bytes().into(),
        num_devices: superblock.num_devices,
        tree_root_level: root.level,
        chunk_root_level: chunk_root.level,
        extent_root_level: extent_root.level,
        fs_root_level: fs_root.level,
        dev_root_level: dev_root.level,
        csum_root_level: csum_root.level,
        ..BackupRoot::new_zeroed()
    };
}
