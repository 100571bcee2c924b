//! Images whose trees lie: whatever they say, nothing panics and nothing goes on forever.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{Directory, ErrorKind, FileType, Filesystem, Inode, OpenOptions, Result};
use larder_format::item::{DirItemHeader, FileType as DirFileType};
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::{ChecksumType, DiskKey, Header, ItemType, Key, Node, Superblock};
use larder_power_cuts::load;
use larder_testkit::{Content, ImageSpec, KernelImage};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zerocopy::{FromBytes, IntoBytes};

const ROUNDS: u64 = 60;
const WOUNDS_PER_ROUND: usize = 12;
/// Far more inodes than there are: a walk that finds so many does not end.
const MOST_INODES: usize = 50_000;
const SUPERBLOCK_OFFSET: u64 = 64 << 10;
const FILE_TYPE_OFFSET: usize = std::mem::offset_of!(DirItemHeader, file_type);

/// The addresses of the copies of each tree block, by address and generation.
fn find_blocks(device: &MemoryDevice) -> Vec<Vec<u64>> {
    let mut bytes = vec![0; 4096];
    device.read_at(&mut bytes, SUPERBLOCK_OFFSET).expect("memory can be read");
    let superblock = Superblock::parse(&bytes, larder_format::Physical(SUPERBLOCK_OFFSET))
        .expect("the image is sound");
    let mut places: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    let mut block = vec![0; superblock.nodesize.get() as usize];
    for offset in (1 << 20..device.len_bytes()).step_by(block.len()) {
        device.read_at(&mut block, offset).expect("memory can be read");
        let (header, _) = Header::ref_from_prefix(&block).expect("it is long enough");
        let is_sound =
            superblock.checksum_type().compute_block(&block).as_bytes() == &header.csum[..4];
        if header.fsid == superblock.fsid && is_sound && Node::parse(&block).is_ok() {
            let key = (header.bytenr.get(), header.generation.get());
            places.entry(key).or_default().push(offset);
        }
    }
    places.into_values().collect()
}

/// Flips a few bits of a tree block where they mean something, and corrects its checksum.
fn wound(block: &mut [u8], random: &mut SmallRng) {
    let (data_start, used) = {
        let node = Node::parse(block).expect("only sound blocks are wounded");
        let nritems = node.nritems();
        let free_bytes = if node.is_leaf() { node.leaf_free_space() } else { 0 };
        let heads_end = HEADER_SIZE + nritems * if node.is_leaf() { ITEM_HEADER_SIZE } else { 33 };
        (heads_end + free_bytes, heads_end)
    };
    let in_data = data_start < block.len() && random.random_bool(0.9);
    let at = if in_data {
        random.random_range(data_start..block.len())
    } else {
        random.random_range(HEADER_SIZE..used.max(HEADER_SIZE + 1))
    };
    block[at] = match random.random_range(0..4) {
        0 => 0,
        1 => 0xFF,
        2 => block[at] ^ (1 << random.random_range(0..8)),
        _ => random.random(),
    };
    let checksum = ChecksumType::Crc32c.compute_block(block);
    block[..4].copy_from_slice(checksum.as_bytes());
}

/// Reads everything that can be read. Returns how many inodes and errors it met.
fn look_at_everything(fs: &Filesystem) -> (usize, usize) {
    let mut look = Look::default();
    let top = look.keep(fs.subvolume("/").and_then(|top| top.root()));
    let mut pending: Vec<Directory> = top.into_iter().collect();
    while let Some(directory) = pending.pop() {
        let Some(entries) = look.keep(directory.entries()) else { continue };
        for entry in entries {
            let Some(inode) = look.keep(entry.and_then(|entry| entry.open())) else { continue };
            look.at(&inode);
            if let Ok(directory) = inode.into_directory() {
                pending.push(directory);
            }
        }
        assert!(look.inodes < MOST_INODES, "the walk does not end");
    }
    look.at_subvolumes(fs);
    (look.inodes, look.errors)
}

#[derive(Default)]
struct Look {
    inodes: usize,
    errors: usize,
}

impl Look {
    fn keep<T>(&mut self, found: Result<T>) -> Option<T> {
        self.errors += usize::from(found.is_err());
        found.ok()
    }

    fn at(&mut self, inode: &Inode) {
        self.inodes += 1;
        let _ = inode.metadata().mtime.to_system_time();
        for xattr in inode.xattrs() {
            self.keep(xattr);
        }
        self.keep(inode.paths());
        match inode.file_type() {
            FileType::Symlink => drop(self.keep(inode.link_target())),
            FileType::Directory => {
                let parent =
                    inode.clone().into_directory().and_then(|directory| directory.parent());
                self.keep(parent);
            }
            FileType::Regular => self.at_file(&inode.clone().into_file().expect("it is one")),
            _ => {}
        }
    }

    fn at_file(&mut self, file: &larder::File) {
        let mut buf = vec![0; 64 << 10];
        let len = file.len_bytes();
        for offset in [0, 4097, len / 2, len.saturating_sub(5000), len] {
            self.keep(file.read_at(&mut buf, offset));
        }
        self.keep(file.data_ranges());
        if let Some(extents) = self.keep(file.extents_from(len / 2)) {
            for extent in extents {
                self.keep(extent);
            }
        }
    }

    fn at_subvolumes(&mut self, fs: &Filesystem) {
        self.keep(fs.space());
        self.keep(fs.default_subvolume());
        for info in fs.subvolumes() {
            let Some(info) = self.keep(info) else { continue };
            self.keep(fs.subvolume_path(info.id));
            let Some(subvolume) = self.keep(fs.subvolume_by_id(info.id)) else { continue };
            let mut paths = subvolume.paths();
            let parts = self.keep(subvolume.scan_parts(3)).unwrap_or_default();
            for inode in parts.into_iter().flatten() {
                let Some(inode) = self.keep(inode) else { continue };
                for link in &inode.links {
                    self.keep(paths.of(link));
                }
            }
        }
    }
}

#[test]
fn wounded_trees_give_errors() {
    let spec = ImageSpec::new("hostile").mount_option("compress=zstd");
    let content = Content::new(51).directory_entries(30).colliding_names(4).file_extents(20);
    let sound = load(&KernelImage::build(&spec, &content).devices()[0]);
    let blocks = find_blocks(&sound);
    let (mut opened, mut inodes, mut errors) = (0, 0, 0);
    let first = larder_testkit::seed(0);
    for seed in first..first + ROUNDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let device = sound.snapshot();
        for _ in 0..WOUNDS_PER_ROUND {
            let copies = &blocks[random.random_range(0..blocks.len())];
            let mut block = vec![0; 16 << 10];
            device.read_at(&mut block, copies[0]).expect("memory can be read");
            if Node::parse(&block).is_ok() {
                wound(&mut block, &mut random);
            }
            for &offset in copies {
                device.write_at(&block, offset).expect("memory can be written");
            }
        }
        let Ok(fs) = OpenOptions::new().open_devices(vec![Arc::new(device)]) else { continue };
        let (found, met) = look_at_everything(&fs);
        opened += 1;
        inodes += found;
        errors += met;
    }
    println!("{opened} opened, {inodes} inodes, {errors} errors, {} blocks", blocks.len());
    assert!(opened > ROUNDS / 2, "only {opened} images of {ROUNDS} could be opened");
    assert!(inodes > 100_000, "only {inodes} inodes were seen");
    assert!(errors > 100, "only {errors} errors were met");
}

/// Makes every entry for a directory in a leaf lead to the directory that has the entry.
fn close_loops(block: &mut [u8]) -> usize {
    let (mut at, node) = (Vec::new(), Node::parse(block).expect("only sound blocks are wounded"));
    if node.is_leaf() {
        for (item, (key, data)) in node.items().iter().zip(node.iter_items()) {
            let is_entry = matches!(key.item_type, ItemType::DIR_ITEM | ItemType::DIR_INDEX);
            if is_entry && data[FILE_TYPE_OFFSET] == DirFileType::Directory as u8 {
                at.push((HEADER_SIZE + item.offset.get() as usize, key.objectid));
            }
        }
    }
    for &(offset, directory) in &at {
        let location = Key::new(directory, ItemType::INODE_ITEM, 0);
        block[offset..offset + size_of::<DiskKey>()]
            .copy_from_slice(DiskKey::from(location).as_bytes());
    }
    let checksum = ChecksumType::Crc32c.compute_block(block);
    block[..4].copy_from_slice(checksum.as_bytes());
    at.len()
}

#[test]
fn directories_in_themselves_are_refused() {
    let content = Content::new(52).directory_entries(30).colliding_names(4).file_extents(20);
    let image = KernelImage::build(&ImageSpec::new("loops"), &content);
    let device = load(&image.devices()[0]);
    let mut block = vec![0; 16 << 10];
    let mut loops = 0;
    for offset in find_blocks(&device).into_iter().flatten() {
        device.read_at(&mut block, offset).expect("memory can be read");
        loops += close_loops(&mut block);
        device.write_at(&block, offset).expect("memory can be written");
    }
    assert!(loops > 10, "only {loops} loops were made");
    let fs = OpenOptions::new().open_devices(vec![Arc::new(device)]).expect("all blocks are sound");
    let top = fs.subvolume("/").and_then(|top| top.root()).expect("there is a top level");
    for entry in top.entries().expect("it is a directory") {
        let opened = entry.expect("it is sound").open();
        assert_eq!(opened.expect_err("it is a loop").kind(), ErrorKind::Corrupt);
    }
    look_at_everything(&fs);
}

/// Gives the last name of each directory that ends within a leaf the highest index that a key can
/// have. A directory at the end of a leaf may go on in the next leaf, so it stays as it is. Returns
/// the number of directories that changed.
fn take_last_indexes(block: &mut [u8]) -> usize {
    let node = Node::parse(block).expect("the block is sound");
    if !node.is_leaf() {
        return 0;
    }
    let keys: Vec<Key> = node.iter_items().map(|(key, _)| key).collect();
    let is_last = |at: &usize| {
        let key = keys[*at];
        let ends_before =
            |next: &Key| (next.objectid, next.item_type) != (key.objectid, key.item_type);
        key.item_type == ItemType::DIR_INDEX && keys.get(at + 1).is_some_and(ends_before)
    };
    let last: Vec<usize> = (0..keys.len()).filter(is_last).collect();
    for at in &last {
        let key = DiskKey::from(Key { offset: u64::MAX, ..keys[*at] });
        let start = HEADER_SIZE + at * ITEM_HEADER_SIZE;
        block[start..start + size_of::<DiskKey>()].copy_from_slice(key.as_bytes());
    }
    let checksum = ChecksumType::Crc32c.compute_block(block);
    block[..4].copy_from_slice(checksum.as_bytes());
    last.len()
}

#[test]
fn a_directory_without_an_index_left_takes_no_name() {
    let image = KernelImage::build(&ImageSpec::new("indexes"), &Content::new(53));
    let device = load(&image.devices()[0]);
    let mut block = vec![0; 16 << 10];
    let mut taken = 0;
    for offset in find_blocks(&device).into_iter().flatten() {
        device.read_at(&mut block, offset).expect("memory can be read");
        taken += take_last_indexes(&mut block);
        device.write_at(&block, offset).expect("memory can be written");
    }
    assert!(taken > 0);
    let options = OpenOptions::new().write(true);
    let fs = options.open_devices(vec![Arc::new(device)]).expect("all blocks are sound");
    let top = fs.subvolume("/").expect("there is a top level");
    let error = top.create("new", 0o644).expect_err("no index is left");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    look_at_everything(&fs);
    // Damage that a change meets halfway ends writing.
    assert_eq!(fs.sync().expect_err("it is read-only").kind(), ErrorKind::ReadOnly);
}
