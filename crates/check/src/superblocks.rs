//! Superblocks, their copies, and their agreement with the trees.

use larder_format::feature::IncompatFlags;
use larder_format::item::DevItem;
use larder_format::node::{HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN, MAX_LEVELS};
use larder_format::superblock::{
    BackupRoot, OFFSETS, SUPER_FLAG_ERROR, SUPER_FLAG_METADUMP, SUPER_FLAG_METADUMP_V2,
    SUPER_FLAG_SEEDING, SUPERBLOCK_SIZE,
};
use larder_format::{Physical, Superblock, objectid};
use larder_volume::VolumeDevice;
use zerocopy::{FromZeros, IntoBytes};

use crate::context::Context;
use crate::report::{Kind, Location};
use crate::space::{BlockGroups, ChunkTree};

/// Checks every copy on every device against the others on that device, and against the one that
/// the volume was opened with.
pub(crate) fn check_copies(context: &Context<'_>) {
    for device in context.volume.devices().iter() {
        if device.is_missing() {
            let message = format_args!("its content cannot be checked");
            context.find(Kind::MissingDevice, Location::device(device.devid()), message);
            continue;
        }
        let copies = sound_copies(context, device);
        if device.is_seed() {
            continue; // Its superblocks belong to another file system.
        }
        let newest = copies.iter().map(|(_, copy)| copy.generation.get()).max();
        for (location, copy) in &copies {
            check_copy(context, device, *location, copy, newest.unwrap_or_default());
        }
        if let Some(newest) = newest {
            check_commit(context, device.devid(), newest);
        }
    }
    check_fields(context, &context.superblock);
    for (number, backup) in context.superblock.super_roots.iter().enumerate() {
        check_backup(context, number, backup);
    }
}

/// The sound copies on a device. Reports the others.
fn sound_copies(context: &Context<'_>, device: &VolumeDevice) -> Vec<(Location, Box<Superblock>)> {
    let Some(real) = device.device() else { return Vec::new() };
    let len_bytes = real.len_bytes().min(device.dev_item().total_bytes.get());
    let fits = |offset: &Physical| offset.0 + SUPERBLOCK_SIZE as u64 <= len_bytes;
    let copy = |offset: Physical| {
        let location = Location::device(device.devid()).at_physical(offset.0);
        let bad = |why: &dyn std::fmt::Display| {
            context.find(Kind::SuperblockBad, location, format_args!("{why}"));
        };
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        real.read_at(&mut bytes, offset.0).inspect_err(|error| bad(error)).ok()?;
        if offset != OFFSETS[0] && bytes.iter().all(|byte| *byte == 0) {
            // Some tools write the first copy only, and the next commit writes all.
            return None;
        }
        let copy = Superblock::parse(&bytes, offset).inspect_err(|error| bad(error)).ok()?;
        Some((location, copy))
    };
    OFFSETS.into_iter().filter(fits).filter_map(copy).collect()
}

/// Checks one copy; `newest` is the highest generation on its device.
fn check_copy(
    context: &Context<'_>,
    device: &VolumeDevice,
    location: Location,
    copy: &Superblock,
    newest: u64,
) {
    let wanted = &context.superblock;
    let disagree = |message: std::fmt::Arguments<'_>| {
        context.find(Kind::SuperblocksDisagree, location, message);
    };
    if copy.generation == wanted.generation {
        if !is_same(copy, wanted) {
            disagree(format_args!("it differs from the others of its generation"));
        }
        return check_device(context, &copy.dev_item, device, location);
    }
    // A power cut while a commit writes its superblocks leaves some of the previous commit. An old
    // one described its device correctly then.
    let generation = copy.generation.get();
    if generation.saturating_add(1) < newest {
        disagree(format_args!(
            "it is of generation {generation}, the newest on the device is {newest}"
        ));
    } else if !is_same_shape(copy, wanted) {
        disagree(format_args!("it describes another file system than the newest"));
    }
}

/// Checks the commit that the superblocks of a device say it has.
///
/// A device can be one commit behind the others for two reasons: a power cut while a commit wrote
/// its superblocks, after all else of the commit was durable; or the device missed that commit.
/// Only a tree block of the commit that the device lacks tells the second from the first.
fn check_commit(context: &Context<'_>, devid: u64, generation: u64) {
    let newest = context.generation();
    if generation.saturating_add(1) == newest {
        context.one_commit_behind.expect(devid);
    } else if generation < newest {
        let message = format_args!("it has the commits up to {generation}, the newest is {newest}");
        context.find(Kind::DeviceOutOfDate, Location::device(devid), message);
    }
}

/// Reports devices that missed the last commit, among those that are one commit behind. Call it
/// when all tree blocks are read.
pub(crate) fn check_devices_behind(context: &Context<'_>) {
    let newest = context.generation();
    for (devid, lacks_blocks) in context.one_commit_behind.take() {
        if lacks_blocks {
            let message = format_args!("it lacks the last commit, {newest}");
            context.find(Kind::DeviceOutOfDate, Location::device(devid), message);
        } else {
            context.sink.skip(format!(
                "whether device {devid} has the data without checksums of the last commit: its \
                 superblock is one commit old, as a power cut leaves it (larder copies what may be \
                 missing when it opens the file system for writing)"
            ));
        }
    }
}

/// Whether two superblocks agree in all that no commit changes.
fn is_same_shape(a: &Superblock, b: &Superblock) -> bool {
    let shape = |superblock: &Superblock| {
        let Superblock { nodesize, sectorsize, csum_type, .. } = *superblock;
        (superblock.fsid(), superblock.metadata_uuid(), nodesize, sectorsize, csum_type)
    };
    shape(a) == shape(b)
}

/// Whether two copies of one generation agree in all that they share.
fn is_same(a: &Superblock, b: &Superblock) -> bool {
    let shared = |superblock: &Superblock| {
        let mut shared = superblock.clone();
        shared.csum.fill(0);
        shared.bytenr = 0.into();
        shared.dev_item = DevItem::new_zeroed();
        // An fsync writes the log's root to the first copy only.
        shared.log_root = 0.into();
        shared.log_root_level = 0;
        shared
    };
    shared(a).as_bytes() == shared(b).as_bytes()
}

fn check_device(context: &Context<'_>, own: &DevItem, device: &VolumeDevice, location: Location) {
    let listed = device.dev_item();
    let is_same = own.devid == listed.devid
        && own.uuid == listed.uuid
        && own.total_bytes == listed.total_bytes
        && own.bytes_used == listed.bytes_used;
    let shape = |item: &DevItem| {
        let DevItem { io_align, io_width, sector_size, .. } = *item;
        (item.fsid(), item.kind, io_align, io_width, sector_size)
    };
    if is_same && shape(own) != shape(&listed) {
        let message =
            format_args!("its item in the chunk tree differs from that in the superblock");
        context.find(Kind::DeviceItem, location, message);
    }
    if !is_same {
        let message = format_args!(
            "the superblock says device {} with {} of {} bytes used, the chunk tree {}, {}, {}",
            own.devid,
            own.bytes_used,
            own.total_bytes,
            listed.devid,
            listed.bytes_used,
            listed.total_bytes
        );
        context.find(Kind::DeviceItem, location, message);
    }
}

fn check_fields(context: &Context<'_>, superblock: &Superblock) {
    let find = |message: std::fmt::Arguments<'_>| {
        context.find(Kind::SuperblockField, Location::FILE_SYSTEM, message);
    };
    let known = HEADER_FLAG_WRITTEN
        | HEADER_FLAG_RELOC
        | SUPER_FLAG_SEEDING
        | SUPER_FLAG_METADUMP
        | SUPER_FLAG_METADUMP_V2;
    let flags = superblock.flags.get();
    if flags & SUPER_FLAG_ERROR != 0 {
        find(format_args!("the kernel noted that the file system is damaged"));
    }
    if flags & !(known | SUPER_FLAG_ERROR) != 0 {
        find(format_args!("flags are {flags:#x}"));
    }
    if superblock.leafsize != superblock.nodesize || superblock.stripesize != superblock.sectorsize
    {
        let Superblock { leafsize, stripesize, .. } = superblock;
        find(format_args!("leafsize is {leafsize} and stripesize {stripesize}"));
    }
    if superblock.root_dir_objectid.get() != objectid::ROOT_TREE_DIR {
        find(format_args!("root_dir_objectid is {}", superblock.root_dir_objectid));
    }
    if superblock.chunk_root_generation > superblock.generation {
        let Superblock { chunk_root_generation, generation, .. } = superblock;
        find(format_args!("generation {generation}, chunk tree {chunk_root_generation}"));
    }
    let wanted_fsid = superblock.metadata_uuid().into_bytes();
    if superblock.dev_item.fsid != wanted_fsid {
        find(format_args!("its device belongs to {}", superblock.dev_item.fsid()));
    }
    if !superblock.label.contains(&0) {
        find(format_args!("its label has no end"));
    }
    if superblock.uuid_tree_generation > superblock.generation {
        let Superblock { uuid_tree_generation, generation, .. } = superblock;
        find(format_args!("generation {generation}, uuid tree {uuid_tree_generation}"));
    }
    if !superblock.has_incompat(IncompatFlags::MIXED_BACKREF) {
        find(format_args!("the MIXED_BACKREF feature is off"));
    }
}

fn check_backup(context: &Context<'_>, number: usize, backup: &BackupRoot) {
    if *backup == BackupRoot::new_zeroed() {
        return;
    }
    let superblock = &context.superblock;
    let generations = [
        backup.tree_root_gen,
        backup.chunk_root_gen,
        backup.extent_root_gen,
        backup.fs_root_gen,
        backup.dev_root_gen,
        backup.csum_root_gen,
    ];
    let levels = [
        backup.tree_root_level,
        backup.chunk_root_level,
        backup.extent_root_level,
        backup.fs_root_level,
        backup.dev_root_level,
        backup.csum_root_level,
    ];
    // The next transaction may already run when the kernel notes the roots.
    let latest = context.generation().saturating_add(1);
    let is_sane = generations.iter().all(|generation| generation.get() <= latest)
        && levels.iter().all(|level| usize::from(*level) < MAX_LEVELS)
        && context.is_aligned(backup.tree_root.get())
        && context.is_aligned(backup.chunk_root.get());
    let is_current = backup.tree_root_gen == superblock.generation;
    let is_right =
        backup.tree_root == superblock.root && backup.tree_root_level == superblock.root_level;
    if !is_sane || (is_current && !is_right) {
        let message = format_args!(
            "backup {number} of generation {} has the root tree at {}",
            backup.tree_root_gen, backup.tree_root
        );
        context.find(Kind::BackupRoot, Location::FILE_SYSTEM, message);
    }
}

/// Compares the superblock with the chunk tree.
pub(crate) fn check_totals(context: &Context<'_>, tree: &ChunkTree) {
    if !tree.is_whole {
        return;
    }
    let Superblock { total_bytes, num_devices, .. } = &*context.superblock;
    let total = tree
        .devices
        .values()
        .fold(0_u64, |sum, device| sum.saturating_add(device.total_bytes.get()));
    let count = tree.devices.len() as u64;
    if total_bytes.get() != total || num_devices.get() != count {
        let message = format_args!(
            "{num_devices} devices with {total_bytes} bytes, the chunk tree has {count} with {total}"
        );
        context.find(Kind::SuperblockTotals, Location::FILE_SYSTEM, message);
    }
    check_system_chunks(context, tree);
}

/// Checks that the superblock has exactly the system chunks, which are needed for reading the chunk
/// tree.
fn check_system_chunks(context: &Context<'_>, tree: &ChunkTree) {
    let find = |logical: u64, message: std::fmt::Arguments<'_>| {
        context.find(Kind::SystemChunkArray, Location::logical(logical), message);
    };
    let mut missing = tree.system_items.clone();
    for chunk in context.superblock.system_chunks() {
        let (key, chunk) = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return find(0, format_args!("{error}")),
        };
        let mut bytes = chunk.header.as_bytes().to_vec();
        bytes.extend_from_slice(chunk.stripes.as_bytes());
        match missing.remove(&key.offset) {
            Some(item) if item == bytes => {}
            Some(_) => find(key.offset, format_args!("it differs from the chunk tree's item")),
            None => find(key.offset, format_args!("the chunk tree has no such system chunk")),
        }
    }
    for logical in missing.keys() {
        find(*logical, format_args!("it lacks this system chunk"));
    }
}

/// Compares the superblock with the block groups.
pub(crate) fn check_bytes_used(context: &Context<'_>, groups: &BlockGroups) {
    let used = groups.groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.used_bytes));
    let said = context.superblock.bytes_used;
    if said.get() != used {
        let message = format_args!("it says {said}, block groups have {used}");
        context.find(Kind::SuperblockBytesUsed, Location::FILE_SYSTEM, message);
    }
}
