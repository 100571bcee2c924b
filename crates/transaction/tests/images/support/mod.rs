//! A small file system over the engine: just enough to create and remove empty files.

pub(crate) mod snapshot;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_btree::{BlockCache, LiveTree};
use larder_device::{Access, Device, FileDevice};
use larder_format::item::{
    DirItemHeader, FileExtentHeader, FileExtentItem, FileExtentKind, FileType, InodeItem,
    InodeRefHeader, RegularExtent, Timespec,
};
use larder_format::objectid::FIRST_FREE;
use larder_format::{ItemType, Key, name_hash};
use larder_testkit::command::run;
use larder_testkit::{Scratch, oracle};
use larder_transaction::space::Priority;
use larder_transaction::{
    DataExtent, DataOwner, Handle, Items, Result, TransactionManager, TreeItems,
};
use larder_volume::{OpenOptions, Volume};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub(crate) const ROOT_DIRECTORY: u64 = FIRST_FREE;
const CACHE_BYTES: usize = 64 << 20;

/// Opens image files for writing.
pub(crate) fn open(files: &[PathBuf]) -> TransactionManager {
    try_open(files).expect("the image can be written")
}

pub(crate) fn try_open(files: &[PathBuf]) -> Result<TransactionManager> {
    let open = |file: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(file, Access::ReadWrite).expect("the image opens"))
    };
    open_devices(files.iter().map(open).collect())
}

/// Opens devices for writing.
pub(crate) fn open_devices(devices: Vec<Arc<dyn Device>>) -> Result<TransactionManager> {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let volume = Arc::new(Volume::open(devices, &options).expect("the volume opens"));
    open_volume(volume)
}

pub(crate) fn open_volume(volume: Arc<Volume>) -> Result<TransactionManager> {
    let cache = Arc::new(BlockCache::new(volume.clone(), CACHE_BYTES));
    TransactionManager::open(volume, cache)
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The root directory of a subvolume.
pub(crate) struct Directory {
    pub(crate) tree: Arc<LiveTree>,
    next_inode: AtomicU64,
    next_index: AtomicU64,
}

impl Directory {
    pub(crate) fn open(manager: &TransactionManager, subvolume: u64) -> Self {
        Self::try_open(manager, subvolume).expect("it can be read")
    }

    pub(crate) fn try_open(manager: &TransactionManager, subvolume: u64) -> Result<Self> {
        let tree = manager.trees().open(subvolume)?.expect("it is there");
        let items = TreeItems::new(tree.clone());
        let last = |key| -> Result<_> { Ok(items.at_or_before(key)?.map(|(key, _)| key)) };
        let inode = last(Key::new(u64::MAX - 256, ItemType(0), 0))?.map_or(0, |key| key.objectid);
        let index = last(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, u64::MAX))?
            .filter(|key| key.item_type == ItemType::DIR_INDEX)
            .map_or(1, |key| key.offset);
        let next_inode = AtomicU64::new(inode.max(FIRST_FREE) + 1);
        Ok(Self { tree, next_inode, next_index: AtomicU64::new(index + 1) })
    }

    fn items(&self) -> TreeItems {
        TreeItems::new(self.tree.clone())
    }

    /// Creates an empty file.
    pub(crate) fn create(&self, handle: &Handle<'_>, name: &str) -> Result<u64> {
        let inode = self.next_inode.fetch_add(1, Relaxed);
        let index = self.next_index.fetch_add(1, Relaxed);
        let generation = handle.generation();
        let inode_key = Key::new(inode, ItemType::INODE_ITEM, 0);
        let mut item = InodeItem::new_zeroed();
        item.generation = generation.into();
        item.transid = generation.into();
        item.nlink = 1.into();
        item.mode = 0o100_644.into();
        item.otime = Timespec::new(1, 0);
        let header = InodeRefHeader { index: index.into(), name_len: (name.len() as u16).into() };
        let reference = [header.as_bytes(), name.as_bytes()].concat();
        let ref_key = Key::new(inode, ItemType::INODE_REF, ROOT_DIRECTORY);
        self.tree.insert_batch(&[(inode_key, item.as_bytes()), (ref_key, &reference)])?;
        let entry = DirItemHeader {
            location: inode_key.into(),
            transid: generation.into(),
            data_len: 0.into(),
            name_len: (name.len() as u16).into(),
            file_type: FileType::Regular as u8,
        };
        let entry = [entry.as_bytes(), name.as_bytes()].concat();
        let mut items = self.items();
        items.insert(dir_item_key(name), &entry)?;
        items.insert(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, index), &entry)?;
        self.grow(generation, 2 * name.len() as i64)?;
        Ok(inode)
    }

    /// The inode of a file.
    pub(crate) fn find(&self, name: &str) -> Result<u64> {
        let entry = self.items().get(dir_item_key(name))?.expect("the file is there");
        let (header, _) = DirItemHeader::ref_from_prefix(&entry).expect("an entry");
        Ok(header.location.get().objectid)
    }

    /// Removes a file with all its items, and then its references to data: its leaves were copied
    /// before, so that references from leaves that snapshots share count separately.
    pub(crate) fn remove(&self, handle: &Handle<'_>, name: &str) -> Result<()> {
        let mut items = self.items();
        let inode = self.find(name)?;
        let ref_key = Key::new(inode, ItemType::INODE_REF, ROOT_DIRECTORY);
        let reference = items.get(ref_key)?.expect("it has a reference");
        let (header, _) = InodeRefHeader::ref_from_prefix(&reference).expect("a reference");
        items.remove(dir_item_key(name))?;
        items.remove(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, header.index.get()))?;
        let at = |offset| Key::new(inode, ItemType::EXTENT_DATA, offset);
        let data = items.range(at(0)..=at(u64::MAX))?;
        let all = Key::new(inode, ItemType(0), 0)..=Key::new(inode, ItemType(255), u64::MAX);
        self.tree.delete_range(all)?;
        for (key, data) in data {
            let (item, _) = FileExtentItem::ref_from_prefix(&data).expect("a regular extent");
            let logical = item.extent.disk_bytenr().expect("no hole");
            let extent = DataExtent { logical, len_bytes: item.extent.disk_num_bytes.get() };
            handle.drop_data_reference(extent, DataOwner { root: 5, inode, offset: key.offset });
        }
        self.grow(handle.generation(), -2 * name.len() as i64)
    }

    /// Gives an inode the attribute `user.filler`.
    pub(crate) fn set_xattr(&self, inode: u64, value: &[u8]) -> Result<()> {
        let name = "user.filler";
        let header = DirItemHeader {
            location: Key::MIN.into(),
            transid: 0.into(),
            data_len: (value.len() as u16).into(),
            name_len: (name.len() as u16).into(),
            file_type: FileType::Xattr as u8,
        };
        let data = [header.as_bytes(), name.as_bytes(), value].concat();
        let hash = name_hash::dir_name(name.as_bytes());
        Ok(self.tree.put(Key::new(inode, ItemType::XATTR_ITEM, hash), &data)?)
    }

    fn grow(&self, generation: u64, by: i64) -> Result<()> {
        let key = Key::new(ROOT_DIRECTORY, ItemType::INODE_ITEM, 0);
        Ok(self.tree.modify(key, |data| {
            let (item, _) = InodeItem::mut_from_prefix(data).expect("an inode");
            item.size = item.size.get().wrapping_add_signed(by).into();
            item.transid = generation.into();
        })?)
    }
}

fn dir_item_key(name: &str) -> Key {
    Key::new(ROOT_DIRECTORY, ItemType::DIR_ITEM, name_hash::dir_name(name.as_bytes()))
}

/// Files with names whose hashes all differ, created and removed at random.
pub(crate) struct Files {
    pub(crate) names: Vec<String>,
    next: u64,
    prefix: &'static str,
    random: Random,
}

impl Files {
    pub(crate) fn new(prefix: &'static str, seed: u64) -> Self {
        Self { names: Vec::new(), next: 0, prefix, random: Random(seed) }
    }

    /// The names, sorted.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut names = self.names.clone();
        names.sort_unstable();
        names
    }

    /// Creates or removes `count` files of the top-level subvolume, a few in each transaction
    /// handle.
    pub(crate) fn churn(&mut self, manager: &TransactionManager, count: u64) -> Result<()> {
        let directory = Directory::try_open(manager, 5)?;
        for _ in 0..count {
            self.step(manager, &directory)?;
        }
        Ok(())
    }

    pub(crate) fn step(
        &mut self,
        manager: &TransactionManager,
        directory: &Directory,
    ) -> Result<()> {
        let removes = !self.names.is_empty() && self.random.below(3) == 0;
        let priority = if removes { Priority::Deleting } else { Priority::Normal };
        let handle = manager.start(8, priority)?;
        if removes {
            let index = self.random.below(self.names.len() as u64) as usize;
            directory.remove(&handle, &self.names.swap_remove(index))?;
        } else {
            let name = format!("{}-{:05}-{:x}", self.prefix, self.next, self.random.next());
            self.next += 1;
            directory.create(&handle, &name)?;
            self.names.push(name);
        }
        handle.end()
    }
}

/// Changes the inode items of `count` random inodes of a subvolume, all over its tree.
pub(crate) fn touch(
    manager: &TransactionManager,
    subvolume: u64,
    count: u64,
    random: &mut Random,
) -> Result<()> {
    let tree = manager.trees().open(subvolume)?.expect("it is there");
    let items = TreeItems::new(tree.clone());
    let last = items.at_or_before(Key::new(u64::MAX - 256, ItemType(0), 0))?;
    let inodes = last.map_or(1, |(key, _)| key.objectid - FIRST_FREE + 1);
    for _ in 0..count {
        let handle = manager.start(1, Priority::Normal)?;
        let wanted = Key::new(FIRST_FREE + random.below(inodes), ItemType::INODE_ITEM, 0);
        let found = items.at_or_after(wanted)?.filter(|(key, _)| {
            key.item_type == ItemType::INODE_ITEM && key.objectid < u64::MAX - 256
        });
        if let Some((key, _)) = found {
            let generation = handle.generation();
            tree.modify(key, |data| {
                let (item, _) = InodeItem::mut_from_prefix(data).expect("an inode");
                item.transid = generation.into();
                item.sequence = (item.sequence.get() + 1).into();
            })?;
        }
        handle.end()?;
    }
    Ok(())
}

/// Names in the root directory of the top-level subvolume that begin with `prefix`, sorted.
pub(crate) fn names(manager: &TransactionManager, prefix: &str) -> Result<Vec<String>> {
    let tree = TreeItems::new(manager.trees().open(5)?.expect("it is there"));
    let all = |offset| Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, offset);
    let mut names = Vec::new();
    for (_, entry) in tree.range(all(0)..=all(u64::MAX))? {
        let name = String::from_utf8_lossy(&entry[size_of::<DirItemHeader>()..]).into_owned();
        if name.starts_with(prefix) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Gives an empty file data of `len_bytes`, whole sectors, in as many extents as the allocator
/// gives.
pub(crate) fn write_data(
    manager: &TransactionManager,
    handle: &Handle<'_>,
    inode: u64,
    len_bytes: u64,
) -> Result<()> {
    let tree = manager.trees().open(5)?.expect("it is there");
    let volume = manager.volume();
    let sector = u64::from(volume.sectorsize());
    let mut done = 0;
    while done < len_bytes {
        let (logical, got) = manager.space().allocate_data(len_bytes - done, sector)?;
        let data: Vec<u8> = (0..got).map(|at| (at / sector + inode + done) as u8).collect();
        volume.write(logical, &data).expect("the device takes it");
        let kind = volume.checksum_type();
        let sums: Vec<u8> = data
            .chunks(sector as usize)
            .flat_map(|sector| kind.compute(sector).as_bytes().to_vec())
            .collect();
        handle.insert_checksums(logical, &sums)?;
        let item = FileExtentItem {
            header: FileExtentHeader {
                generation: handle.generation().into(),
                ram_bytes: got.into(),
                compression: 0,
                encryption: 0,
                other_encoding: 0.into(),
                kind: FileExtentKind::Regular as u8,
            },
            extent: RegularExtent {
                disk_bytenr: logical.0.into(),
                disk_num_bytes: got.into(),
                offset: 0.into(),
                num_bytes: got.into(),
            },
        };
        tree.insert(Key::new(inode, ItemType::EXTENT_DATA, done), item.as_bytes())?;
        let extent = DataExtent { logical, len_bytes: got };
        handle.add_new_data(extent, DataOwner { root: 5, inode, offset: done });
        done += got;
    }
    Ok(tree.modify(Key::new(inode, ItemType::INODE_ITEM, 0), |data| {
        let (item, _) = InodeItem::mut_from_prefix(data).expect("an inode");
        item.size = len_bytes.into();
        item.nbytes = len_bytes.into();
    })?)
}

/// An empty file system of mkfs.btrfs.
pub(crate) struct Blank {
    pub(crate) devices: Vec<PathBuf>,
    _scratch: Scratch,
}

impl Blank {
    pub(crate) fn new(arguments: &str, lens_bytes: &[u64]) -> Self {
        let scratch = Scratch::new();
        let file =
            |(number, len): (usize, &u64)| scratch.sparse_file(&format!("device{number}"), *len);
        let devices: Vec<PathBuf> = lens_bytes.iter().enumerate().map(file).collect();
        let options = arguments.split_whitespace().map(OsStr::new);
        let files = devices.iter().map(|file| file.as_os_str());
        run("mkfs.btrfs", ["-q".as_ref(), "-f".as_ref()].into_iter().chain(options).chain(files))
            .expect("mkfs.btrfs makes it");
        Self { devices, _scratch: scratch }
    }

    pub(crate) fn check(&self, what: &str) {
        oracle::check(&self.devices, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
