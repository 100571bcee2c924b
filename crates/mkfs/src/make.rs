//! Making a file system from start to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use larder_device::Device;
use larder_format::SpaceKind;
use larder_image::Opened;
use larder_volume::layout::{DeviceSpace, Devices};
use larder_volume::{ChunkMap, Volume, VolumeDevice};

use crate::checksums::ChecksumTree;
use crate::content::BufferPool;
use crate::estimate::appetite;
use crate::finish::{Content, EarlierTrees, Plan, add_content, dev_item, finish, new_superblock};
use crate::image::Image;
use crate::populate::populate;
use crate::settings::{Medium, Settings};
use crate::source::{Source, scan};
use crate::space::{Appetite, ChunkAllocator, Sizes, Space, min_device_bytes, needed_device_bytes};
use crate::summary::{DeviceSummary, GroupSummary, Summary};
use crate::target::Undo;
use crate::wipe::wipe;
use crate::writer::Writer;
use crate::{Features, MkfsError, MkfsOptions, target};

/// Makes a file system on files and block devices.
///
/// Creates a file if it does not exist and its length is known: from `byte_count`, or because there
/// is a root directory. Without `byte_count`, files that are too short for the root directory are
/// made longer, if its content does not fit in chunks of the kernel's sizes: in smaller ones for
/// metadata, the file system could hardly be changed. Files are cut only once the file system is
/// complete; after an error, created files are removed, and lengthened ones get their old length
/// back. Refuses targets that a kernel or another program uses or that are given twice, and,
/// without `force`, targets that hold a known file system or partition table.
pub fn mkfs(targets: &[PathBuf], options: &MkfsOptions) -> Result<Summary, MkfsError> {
    target::refuse_twice(targets)?;
    let settings = Settings::resolve(options, Medium::of_targets(targets))?;
    let source = read_source(options, targets)?;
    let appetite = appetite(&source, &settings);
    let least_bytes = match options.root_dir {
        Some(_) => needed_device_bytes(&settings, targets.len(), appetite),
        None => 0,
    };
    let new_len_bytes = options.byte_count.or((least_bytes > 0).then_some(least_bytes));
    let mut undo = Undo::default();
    let images: Vec<Opened> = targets
        .iter()
        .map(|path| undo.open(path, options.place, new_len_bytes, options.force))
        .collect::<Result<_, _>>()?;
    let devices: Vec<Arc<dyn Device>> =
        images.iter().map(|image| Arc::clone(&image.device)).collect();
    let make_in = |new_len: &dyn Fn(&Opened) -> u64, appetite| {
        let lens = images.iter().map(|image| (image.device.name(), new_len(image)));
        let rooms = device_rooms(lens, options, &settings)?;
        let space = first_groups(rooms, &settings, appetite)?;
        make(&devices, space, options, &settings, &source)
    };
    let mut new_len: Box<dyn Fn(&Opened) -> u64> = Box::new(|image| image.device.len_bytes());
    let wanted_len = |image: &Opened| target::new_len(image, options.byte_count, least_bytes);
    let grows = images.iter().any(|image| wanted_len(image) > image.device.len_bytes());
    let is_short = |made: &Result<_, MkfsError>| {
        matches!(made, Err(MkfsError::NoSpace { .. } | MkfsError::TooSmall { .. }))
    };
    // The estimate is an upper bound. What fits makes no file longer.
    let mut made = None;
    if grows && options.byte_count.is_none() {
        let least = Appetite { sizes: Sizes::LeastMetadata, ..appetite };
        let tries = if settings.shrink { &[appetite][..] } else { &[appetite, least] };
        made = tries.iter().map(|appetite| make_in(&*new_len, *appetite)).find(|it| !is_short(it));
    }
    let summary = match made {
        Some(made) => made?,
        None => {
            new_len = Box::new(wanted_len);
            for image in &images {
                undo.lengthen(image, wanted_len(image))?;
            }
            make_in(&*new_len, appetite)?
        }
    };
    undo.forget();
    for (image, made) in images.iter().zip(&summary.devices) {
        if let Some(file) = &image.file {
            let shrunk = if settings.shrink { made.len_bytes } else { u64::MAX };
            target::shorten(file, new_len(image).min(shrunk))?;
        }
    }
    Ok(summary)
}

/// Makes a file system on devices of any type.
pub fn mkfs_on(devices: &[Arc<dyn Device>], options: &MkfsOptions) -> Result<Summary, MkfsError> {
    let settings = Settings::resolve(options, Medium::of(devices.len()))?;
    let source = read_source(options, &[])?;
    if !options.force {
        devices.iter().try_for_each(|device| target::refuse_content(device.as_ref()))?;
    }
    let lens = devices.iter().map(|device| (device.name(), device.len_bytes()));
    let rooms = device_rooms(lens, options, &settings)?;
    let space = first_groups(rooms, &settings, appetite(&source, &settings))?;
    make(devices, space, options, &settings, &source)
}

fn read_source(options: &MkfsOptions, targets: &[PathBuf]) -> Result<Source, MkfsError> {
    match &options.root_dir {
        Some(root) => scan(&absolute(root)?, options, targets),
        None => Ok(Source::empty()),
    }
}

/// Directories are opened by path again and again.
fn absolute(path: &Path) -> Result<PathBuf, MkfsError> {
    std::path::absolute(path).map_err(MkfsError::source(|| path.to_owned()))
}

fn make(
    devices: &[Arc<dyn Device>],
    space: Space,
    options: &MkfsOptions,
    settings: &Settings,
    source: &Source,
) -> Result<Summary, MkfsError> {
    for device in devices {
        wipe(device.as_ref(), options.discard)?;
    }
    let volume = new_volume(devices, &space, settings);
    let buffers = BufferPool::default();
    let mut superblock = new_superblock(settings);
    let space = thread::scope(|scope| {
        let writer = Writer::start(scope, &volume, &buffers, options.progress.as_ref());
        let mut image = Image::new(settings, space, &volume, writer);
        let (earlier, plan) = fill(&mut image, source, &buffers)?;
        image.finish_writing()?;
        let compression_used = image.compression_used;
        let content = Content { source, earlier: &earlier, plan: &plan, compression_used };
        add_content(&mut superblock, settings, content);
        Ok::<_, MkfsError>(plan.space)
    })?;
    // The final sizes for the device items are known only now.
    for (device, room) in volume.devices().iter().zip(space.devices().iter()) {
        device.change_dev_item(|item| *item = dev_item(&space, room, settings));
    }
    volume.write_superblocks(&superblock)?;
    volume.flush()?;
    Ok(summary(devices, &space, settings))
}

/// The space of devices with these names and lengths.
fn device_rooms<'a>(
    devices: impl Iterator<Item = (&'a str, u64)>,
    options: &MkfsOptions,
    settings: &Settings,
) -> Result<Devices, MkfsError> {
    let needed_bytes = min_device_bytes(settings, settings.device_uuids.len());
    devices
        .zip(&settings.device_uuids)
        .zip(1..)
        .map(|(((name, len_bytes), uuid), devid)| {
            let wanted = options.byte_count.unwrap_or(len_bytes);
            if wanted > len_bytes {
                let problem = format!("{name} has {len_bytes} bytes, fewer than {wanted}");
                return Err(MkfsError::InvalidOptions(problem));
            }
            let total_bytes = wanted / settings.sector_size as u64 * settings.sector_size as u64;
            if total_bytes < needed_bytes {
                let device = name.to_owned();
                return Err(MkfsError::TooSmall { device, len_bytes: wanted, needed_bytes });
            }
            Ok(DeviceSpace::new(devid, *uuid, total_bytes))
        })
        .collect()
}

/// One block group for each use. If they are to be cut, what moves down then is metadata.
fn first_groups(
    rooms: Devices,
    settings: &Settings,
    appetite: Appetite,
) -> Result<Space, MkfsError> {
    let mut space = Space::new(ChunkAllocator::new(rooms, appetite));
    let mixed = settings.has(Features::MIXED_GROUPS);
    let uses = if settings.shrink {
        [SpaceKind::System, SpaceKind::Data, SpaceKind::Metadata]
    } else {
        [SpaceKind::System, SpaceKind::Metadata, SpaceKind::Data]
    };
    for usage in uses {
        if !(mixed && usage == SpaceKind::Data) {
            space.add_group(usage, settings)?;
        }
    }
    Ok(space)
}

/// The devices as a volume without chunks.
fn new_volume(devices: &[Arc<dyn Device>], space: &Space, settings: &Settings) -> Volume {
    let members = devices.iter().zip(space.devices().iter()).map(|(device, room)| {
        VolumeDevice::new(dev_item(space, room, settings), Arc::clone(device))
    });
    Volume::new(new_superblock(settings), members.collect(), ChunkMap::new())
}

/// Builds and queues all but the superblocks.
fn fill(
    image: &mut Image<'_>,
    source: &Source,
    buffers: &BufferPool,
) -> Result<(EarlierTrees, Plan), MkfsError> {
    let mut checksums = ChecksumTree::new(image.settings);
    let subvolumes = source
        .subvolumes
        .iter()
        .map(|subvolume| populate(image, &mut checksums, source, subvolume, buffers))
        .collect::<Result<Vec<_>, _>>()?;
    let checksums = checksums.finish(image)?;
    if image.settings.shrink {
        image.settle()?;
    }
    let earlier = EarlierTrees { subvolumes, checksums };
    let plan = finish(image, source, &earlier)?;
    Ok((earlier, plan))
}

fn summary(devices: &[Arc<dyn Device>], space: &Space, settings: &Settings) -> Summary {
    let uses: &[SpaceKind] = if settings.has(Features::MIXED_GROUPS) {
        &[SpaceKind::Metadata, SpaceKind::System]
    } else {
        &[SpaceKind::Data, SpaceKind::Metadata, SpaceKind::System]
    };
    let block_groups = uses.iter().map(|&usage| {
        let flags = settings.block_group_flags(usage);
        let groups = space.groups().iter().filter(|group| group.flags() == flags);
        GroupSummary {
            name: flags.type_name(),
            profile: settings.profile(usage),
            len_bytes: groups.map(|group| group.chunk.len_bytes()).sum(),
        }
    });
    let devices = devices.iter().zip(space.devices().iter()).map(|(device, room)| DeviceSummary {
        devid: room.devid,
        len_bytes: room.total_bytes,
        name: device.name().to_owned(),
    });
    Summary {
        label: settings.label.clone(),
        uuid: settings.fsid,
        node_size_bytes: settings.node_size as u32,
        sector_size_bytes: settings.sector_size as u32,
        total_bytes: space.devices().iter().map(|room| room.total_bytes).sum(),
        used_bytes: space.used_bytes(),
        block_groups: block_groups.collect(),
        features: settings.features,
        checksum: settings.checksum,
        devices: devices.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use larder_device::MemoryDevice;

    use super::*;

    /// Makes a file system from a source that changes after its names were read.
    fn make_changed(change: impl Fn(&Path)) -> Result<Summary, MkfsError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, vec![1; 100_000]).unwrap();
        fs::write(folder.path().join("large"), vec![1; 3 << 20]).unwrap();
        let options = MkfsOptions::default();
        let settings = Settings::resolve(&options, Medium::of(1))?;
        let source = scan(folder.path(), &options, &[])?;
        change(folder.path());
        let device = Arc::new(MemoryDevice::new("memory", 150 << 20));
        let lens = [(device.name(), device.len_bytes())];
        let rooms = device_rooms(lens.into_iter(), &options, &settings)?;
        let space = first_groups(rooms, &settings, appetite(&source, &settings))?;
        make(&[Arc::clone(&device) as Arc<dyn Device>], space, &options, &settings, &source)
    }

    #[test]
    fn changes_of_the_source_are_noticed() {
        let error = |change: fn(&Path)| make_changed(change).unwrap_err().to_string();
        let removed = error(|root| fs::remove_file(root.join("file")).unwrap());
        assert!(removed.contains("file: No such file"), "{removed}");
        for (name, len) in [("file", 99_999), ("large", 1)] {
            let shorter = make_changed(|root| {
                let file = fs::File::options().write(true).open(root.join(name)).unwrap();
                file.set_len(len).unwrap();
            });
            let shorter = shorter.unwrap_err().to_string();
            assert!(shorter.ends_with("being copied: it became shorter"), "{shorter}");
            assert!(shorter.contains(name));
        }
        let other_type = error(|root| {
            fs::remove_file(root.join("file")).unwrap();
            std::os::unix::fs::symlink("large", root.join("file")).unwrap();
        });
        assert!(other_type.contains("file: "), "{other_type}");
    }

    #[test]
    fn files_added_meanwhile_are_left_out() {
        let longer = |root: &Path| {
            fs::write(root.join("file"), vec![2; 200_000]).unwrap();
            fs::write(root.join("new"), "new").unwrap();
        };
        let summary = make_changed(longer).unwrap();
        let unchanged = make_changed(|_| {}).unwrap();
        assert_eq!(summary.used_bytes, unchanged.used_bytes);
    }
}
