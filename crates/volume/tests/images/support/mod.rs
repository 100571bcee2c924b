//! Reads everything of a file system through a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};
use larder_format::item::{FileExtent, RootItem};
use larder_format::{ItemType, Key, Logical, Node, objectid};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};
use larder_volume::{BlockExpectation, OpenError, OpenOptions, Volume};

pub(crate) const MIB: u64 = 1 << 20;

/// An image of `devices` devices with data and metadata of `profile`, all of it checksummed.
pub(crate) fn image(profile: Profile, devices: usize) -> KernelImage {
    let spec = ImageSpec::new(format!("{}-{devices}", profile.name()))
        .devices(&vec![256 * MIB; devices])
        .profiles(profile, profile);
    KernelImage::build(&spec, &Content::new(devices as u64).all_checksummed())
}

pub(crate) fn devices(paths: &[PathBuf], access: Access) -> Vec<Arc<dyn Device>> {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, access).expect("the image file opens"))
    };
    paths.iter().map(open).collect()
}

pub(crate) fn try_open(paths: &[PathBuf], options: &OpenOptions) -> Result<Volume, OpenError> {
    let access = if options.write { Access::ReadWrite } else { Access::ReadOnly };
    Volume::open(devices(paths, access), options)
}

#[track_caller]
pub(crate) fn open(paths: &[PathBuf], options: &OpenOptions) -> Volume {
    try_open(paths, options).unwrap_or_else(|error| panic!("{paths:?}: {error}"))
}

/// All tree blocks and all checksummed data of a file system.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Everything {
    /// Checksums of the tree blocks by address.
    pub(crate) blocks: BTreeMap<Logical, [u8; 32]>,
    /// Checksums of the data's content (CRC-32C) by address of the checksum item.
    pub(crate) data: BTreeMap<Logical, u32>,
    /// Bad copies.
    pub(crate) failures: Failures,
}

/// Fails if two ways to read the same differ.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) messages: Vec<String>,
    pub(crate) healed: usize,
}

impl PartialEq for Failures {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Everything {
    #[track_caller]
    pub(crate) fn read(volume: &Volume) -> Self {
        let mut found = Self::default();
        let superblock = volume.superblock();
        let mut roots = BTreeMap::new();
        let root_tree =
            Tree { id: objectid::ROOT_TREE, root: superblock.root(), level: superblock.root_level };
        found.walk(volume, root_tree, superblock.generation.get(), &mut |key, item| {
            if key.item_type == ItemType::ROOT_ITEM {
                let item = RootItem::parse(item).expect("a root item");
                let (root, level) = (item.bytenr(), item.level);
                let tree = Tree { id: key.objectid, root, level };
                roots.insert((key.objectid, key.offset), (tree, item.generation.get()));
            }
        });
        let chunk_tree = Tree {
            id: objectid::CHUNK_TREE,
            root: superblock.chunk_root(),
            level: superblock.chunk_root_level,
        };
        let generation = superblock.chunk_root_generation.get();
        found.walk(volume, chunk_tree, generation, &mut |_, _| ());
        let mut checksums = Vec::new();
        for (tree, generation) in roots.into_values() {
            found.walk(volume, tree, generation, &mut |key, item| {
                if tree.id == objectid::CSUM_TREE && key.item_type == ItemType::EXTENT_CSUM {
                    checksums.push((Logical(key.offset), item.to_vec()));
                }
            });
        }
        for (logical, checksums) in checksums {
            found.read_data(volume, logical, &checksums);
        }
        found
    }

    #[track_caller]
    fn walk(
        &mut self,
        volume: &Volume,
        tree: Tree,
        generation: u64,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) {
        let first = BlockExpectation {
            generation: Some(generation),
            level: Some(tree.level),
            owner: Some(tree.id),
            first_key: None,
        };
        let mut todo = vec![(tree.root, first)];
        let mut seen = BTreeSet::new();
        let mut block = vec![0; volume.nodesize() as usize];
        while let Some((logical, expected)) = todo.pop() {
            assert!(seen.insert(logical), "a loop at {logical}");
            let read = volume
                .read_tree_block(logical, &expected, &mut block)
                .unwrap_or_else(|error| panic!("{error}"));
            self.failures.messages.extend(read.failures.iter().map(ToString::to_string));
            self.failures.healed += read.healed;
            let node = Node::from_checked(&block);
            self.blocks.insert(logical, node.header().csum);
            if node.is_leaf() {
                node.iter_items().for_each(|(key, item)| visit(key, item));
                continue;
            }
            todo.extend(node.key_pointers().iter().map(|pointer| {
                let expected = BlockExpectation {
                    generation: Some(pointer.generation.get()),
                    level: Some(node.level() - 1),
                    owner: Some(tree.id),
                    first_key: Some(pointer.key.get()),
                };
                (pointer.blockptr(), expected)
            }));
        }
    }

    #[track_caller]
    fn read_data(&mut self, volume: &Volume, logical: Logical, checksums: &[u8]) {
        let sectors = checksums.len() / volume.checksum_type().size();
        let mut bytes = vec![0; sectors * volume.sectorsize() as usize];
        let read = volume
            .read_data(logical, &mut bytes, Some(checksums))
            .unwrap_or_else(|error| panic!("{error}"));
        self.failures.messages.extend(read.failures.iter().map(ToString::to_string));
        self.failures.healed += read.healed;
        let crc = larder_format::ChecksumType::Crc32c.compute(&bytes);
        let crc = u32::from_le_bytes(crc.as_bytes().try_into().expect("4 bytes"));
        self.data.insert(logical, crc);
    }
}

#[derive(Clone, Copy)]
struct Tree {
    id: u64,
    root: Logical,
    level: u8,
}

/// All items of the tree with this id.
#[track_caller]
pub(crate) fn items_of(volume: &Volume, id: u64) -> Vec<(Key, Vec<u8>)> {
    let superblock = volume.superblock();
    let mut root = None;
    let mut found = Everything::default();
    let root_tree =
        Tree { id: objectid::ROOT_TREE, root: superblock.root(), level: superblock.root_level };
    found.walk(volume, root_tree, superblock.generation.get(), &mut |key, item| {
        if key.objectid == id && key.item_type == ItemType::ROOT_ITEM {
            let item = RootItem::parse(item).expect("a root item");
            root = Some((Tree { id, root: item.bytenr(), level: item.level }, item.generation));
        }
    });
    let (tree, generation) = root.unwrap_or_else(|| panic!("there is no tree {id}"));
    let mut items = Vec::new();
    found.walk(volume, tree, generation.get(), &mut |key, item| items.push((key, item.to_vec())));
    items.sort_unstable();
    items
}

/// A file's extent: where in the file, where on disk, bytes; uncompressed.
pub(crate) type Extent = (u64, Logical, u64);

/// The extents of a file of the top-level subvolume.
#[track_caller]
pub(crate) fn extents_of(volume: &Volume, inode: u64) -> Vec<Extent> {
    let is_extent = |key: &Key| key.objectid == inode && key.item_type == ItemType::EXTENT_DATA;
    let items = items_of(volume, objectid::FS_TREE);
    let extents = items.iter().filter(|(key, _)| is_extent(key)).map(|(key, item)| {
        let FileExtent::Regular { extent, .. } = FileExtent::parse(item).expect("a file extent")
        else {
            panic!("it is inline")
        };
        let start = extent.disk_bytenr.get() + extent.offset.get();
        (key.offset, Logical(start), extent.num_bytes.get())
    });
    extents.collect()
}

/// The paths except those at these places.
pub(crate) fn without(paths: &[PathBuf], lost: &[usize]) -> Vec<PathBuf> {
    let kept = (0..).zip(paths).filter(|(at, _)| !lost.contains(at));
    kept.map(|(_, path)| path.clone()).collect()
}

/// All ways to choose `count` of the numbers below `below`.
pub(crate) fn choices(below: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    (0..below)
        .flat_map(|last| {
            choices(last, count - 1).into_iter().map(move |mut chosen| {
                chosen.push(last);
                chosen
            })
        })
        .collect()
}

/// Inode number and content of a file on a mounted file system.
#[track_caller]
pub(crate) fn kernel_file(root: &Path, path: &str) -> (u64, Vec<u8>) {
    use std::os::unix::fs::MetadataExt;
    let path = root.join(path);
    let metadata = std::fs::metadata(&path).expect("the file is there");
    (metadata.ino(), std::fs::read(&path).expect("the kernel reads it"))
}
