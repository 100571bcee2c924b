//! Superblocks, their copies, and their agreement with the trees.

use larder_device::DeviceError;
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
use crate::evidence::SuperblockEvidence as Damage;
use crate::report::Location;
use crate::space::{BlockGroups, ChunkTree};

/// Checks every copy on every device against the others on that device, and against the one that
/// the volume was opened with.
pub(crate) fn check_copies(context: &Context<'_>) {
    for device in context.volume.devices().iter() {
        if device.is_missing() {
            context.find(Location::device(device.devid()), Damage::DeviceMissing);
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
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        let unread = |error: &DeviceError| {
            let problem = error.to_string();
            context.find(location, Damage::Unreadable { problem });
        };
        real.read_at(&mut bytes, offset.0).inspect_err(unread).ok()?;
        if offset != OFFSETS[0] && bytes.iter().all(|byte| *byte == 0) {
            // Some tools write the first copy only, and the next commit writes all.
            return None;
        }
        let copy = Superblock::parse(&bytes, offset)
            .inspect_err(|error| context.find(location, Damage::Invalid { problem: error.clone() }))
            .ok()?;
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
    if copy.generation == wanted.generation {
        if !is_same(copy, wanted) {
            context.find(location, Damage::Differs);
        }
        return check_device(context, &copy.dev_item, device, location);
    }
    // A power cut while a commit writes its superblocks leaves some of the previous commit. An old
    // one described its device correctly then.
    let generation = copy.generation.get();
    if generation.saturating_add(1) < newest {
        let (found_generation, newest_generation) = (generation, newest);
        context.find(location, Damage::Old { found_generation, newest_generation });
    } else if !is_same_shape(copy, wanted) {
        context.find(location, Damage::OtherFileSystem);
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
        let (found_generation, newest_generation) = (generation, newest);
        let behind = Damage::Behind { found_generation, newest_generation };
        context.find(Location::device(devid), behind);
    }
}

/// Reports devices that missed the last commit, among those that are one commit behind. Call it
/// when all tree blocks are read.
pub(crate) fn check_devices_behind(context: &Context<'_>) {
    let newest = context.generation();
    for (devid, lacks_blocks) in context.one_commit_behind.take() {
        if lacks_blocks {
            let lacking = Damage::LacksLastCommit { newest_generation: newest };
            context.find(Location::device(devid), lacking);
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
        context.find(location, Damage::DeviceItemDiffers);
    }
    if !is_same {
        let numbers = Damage::DeviceNumbers {
            found_devid: own.devid.get(),
            found_bytes_used: own.bytes_used.get(),
            found_total_bytes: own.total_bytes.get(),
            listed_devid: listed.devid.get(),
            listed_bytes_used: listed.bytes_used.get(),
            listed_total_bytes: listed.total_bytes.get(),
        };
        context.find(location, numbers);
    }
}

fn check_fields(context: &Context<'_>, superblock: &Superblock) {
    let find = |damage: Damage| context.find(Location::FILE_SYSTEM, damage);
    let generation = superblock.generation.get();
    let known = HEADER_FLAG_WRITTEN
        | HEADER_FLAG_RELOC
        | SUPER_FLAG_SEEDING
        | SUPER_FLAG_METADUMP
        | SUPER_FLAG_METADUMP_V2;
    let flags = superblock.flags.get();
    if flags & SUPER_FLAG_ERROR != 0 {
        find(Damage::NotedDamage);
    }
    if flags & !(known | SUPER_FLAG_ERROR) != 0 {
        find(Damage::Flags { found: flags });
    }
    if superblock.leafsize != superblock.nodesize || superblock.stripesize != superblock.sectorsize
    {
        let (leafsize, stripesize) = (superblock.leafsize.get(), superblock.stripesize.get());
        find(Damage::Sizes { leafsize, stripesize });
    }
    if superblock.root_dir_objectid.get() != objectid::ROOT_TREE_DIR {
        find(Damage::RootDirectory { found: superblock.root_dir_objectid.get() });
    }
    if superblock.chunk_root_generation > superblock.generation {
        let found = superblock.chunk_root_generation.get();
        find(Damage::ChunkRootGeneration { generation, found });
    }
    let wanted_fsid = superblock.metadata_uuid().into_bytes();
    if superblock.dev_item.fsid != wanted_fsid {
        find(Damage::DeviceFsid { found: superblock.dev_item.fsid() });
    }
    if !superblock.label.contains(&0) {
        find(Damage::LabelWithoutEnd);
    }
    if superblock.uuid_tree_generation > superblock.generation {
        let found = superblock.uuid_tree_generation.get();
        find(Damage::UuidTreeGeneration { generation, found });
    }
    if !superblock.has_incompat(IncompatFlags::MIXED_BACKREF) {
        find(Damage::NoMixedBackrefs);
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
    let is_wrong =
        is_current && !has_root(superblock, backup) && !is_before_the_last(superblock, number);
    if !is_sane || is_wrong {
        let (generation, root) = (backup.tree_root_gen.get(), backup.tree_root.get());
        context.find(Location::FILE_SYSTEM, Damage::Backup { number, generation, root });
    }
}

fn has_root(superblock: &Superblock, backup: &BackupRoot) -> bool {
    backup.tree_root == superblock.root && backup.tree_root_level == superblock.root_level
}

/// Whether a backup is of the commit before the last one. It may have the root tree of the transaction
/// that was running then, which has become the last one: the tree can have moved on in it since.
fn is_before_the_last(superblock: &Superblock, number: usize) -> bool {
    let next = &superblock.super_roots[(number + 1) % superblock.super_roots.len()];
    let generation = superblock.generation.get();
    match next.tree_root_gen.get() {
        found if found == generation => has_root(superblock, next),
        found => found == generation.saturating_add(1),
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
        let totals = Damage::Totals {
            found_devices: num_devices.get(),
            found_bytes: total_bytes.get(),
            expected_devices: count,
            expected_bytes: total,
        };
        context.find(Location::FILE_SYSTEM, totals);
    }
    check_system_chunks(context, tree);
}

/// Checks that the superblock has exactly the system chunks, which are needed for reading the chunk
/// tree.
fn check_system_chunks(context: &Context<'_>, tree: &ChunkTree) {
    let find = |logical, damage: Damage| context.find(Location::logical(logical), damage);
    let mut missing = tree.system_items.clone();
    for chunk in context.superblock.system_chunks() {
        let (key, chunk) = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return find(0, Damage::SystemChunkInvalid { problem: error }),
        };
        let mut bytes = chunk.header.as_bytes().to_vec();
        bytes.extend_from_slice(chunk.stripes.as_bytes());
        match missing.remove(&key.offset) {
            Some(item) if item == bytes => {}
            Some(_) => find(key.offset, Damage::SystemChunkDiffers),
            None => find(key.offset, Damage::SystemChunkUnknown),
        }
    }
    for logical in missing.keys() {
        find(*logical, Damage::SystemChunkLacking);
    }
}

/// Compares the superblock with the block groups.
pub(crate) fn check_bytes_used(context: &Context<'_>, groups: &BlockGroups) {
    let used = groups.groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.used_bytes));
    let said = context.superblock.bytes_used;
    if said.get() != used {
        let bytes_used = Damage::BytesUsed { found: said.get(), expected: used };
        context.find(Location::FILE_SYSTEM, bytes_used);
    }
}
