//! An image in memory for planting wounds: tests find items by tree and key and change them, and
//! every copy of the block gets a right checksum again, so that a deeper check must find the
//! damage.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_check::{Options, Report};
use larder_device::{Device, MemoryDevice};
use larder_format::item::RootItem;
use larder_format::node::{
    HEADER_SIZE, ITEM_HEADER_SIZE, ItemHeader, KEY_POINTER_SIZE, KeyPointer,
};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Header, ItemType, Key, Logical, Node, Superblock, objectid};
use larder_volume::{OpenOptions, Volume};
use zerocopy::{FromBytes, IntoBytes};

const PIECE_BYTES: usize = 1 << 16;

/// An item and the leaf that holds it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) leaf: u64,
    pub(crate) slot: usize,
    pub(crate) key: Key,
    pub(crate) data: Vec<u8>,
}

/// A file system in memory.
pub(crate) struct Patient {
    devices: Vec<Arc<MemoryDevice>>,
    /// For finding locations: opened before any wound.
    volume: Volume,
}

impl Patient {
    /// Reads image files into memory.
    pub(crate) fn load(files: &[PathBuf]) -> Self {
        let load = |file: &PathBuf| Arc::new(load(file));
        Self::of(files.iter().map(load).collect())
    }

    /// The file system on devices.
    pub(crate) fn of(devices: Vec<Arc<MemoryDevice>>) -> Self {
        let volume = open(&devices).expect("a sound image opens");
        Self { devices, volume }
    }

    /// A copy to wound. The original stays as it is.
    pub(crate) fn copy(&self) -> Self {
        Self::of(self.devices.iter().map(|device| Arc::new(device.snapshot())).collect())
    }

    /// The devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Arc<MemoryDevice>> + '_ {
        self.devices.iter().cloned()
    }

    /// Checks the current state. The error says why it cannot be opened at all.
    pub(crate) fn check(&self) -> Result<Report, String> {
        let volume = open(&self.devices)?;
        let options = Options { check_data_csum: true, threads: 1, ..Options::default() };
        Ok(larder_check::check(&volume, &options).expect("nobody stops it"))
    }

    /// Writes the devices to sparse files.
    pub(crate) fn save(&self, folder: &Path) -> Vec<PathBuf> {
        let save = |(number, device): (usize, Arc<MemoryDevice>)| {
            let path = folder.join(format!("device{number}"));
            let file = File::create(&path).expect("creates");
            file.set_len(device.len_bytes()).expect("grows");
            let mut piece = vec![0; PIECE_BYTES];
            for at in (0..device.len_bytes()).step_by(PIECE_BYTES) {
                device.read_at(&mut piece, at).expect("reads");
                if piece.iter().any(|byte| *byte != 0) {
                    file.write_all_at(&piece, at).expect("writes");
                }
            }
            path
        };
        self.devices().enumerate().map(save).collect()
    }

    fn superblock(&self) -> Arc<Superblock> {
        self.volume.superblock()
    }

    pub(crate) fn nodesize(&self) -> usize {
        self.volume.nodesize() as usize
    }

    pub(crate) fn generation(&self) -> u64 {
        self.superblock().generation.get()
    }

    /// Address of the tree of log trees.
    pub(crate) fn log_root(&self) -> u64 {
        self.superblock().log_root.get()
    }

    /// An address of a metadata chunk that shares its place on a device with a superblock copy.
    pub(crate) fn address_on_superblock(&self) -> u64 {
        let chunks = self.volume.chunks();
        let of_metadata = chunks
            .iter()
            .filter(|chunk| chunk.flags().contains(larder_format::BlockGroupFlags::METADATA));
        let mut ranges = of_metadata.flat_map(|chunk| chunk.superblock_ranges());
        ranges.next().expect("a chunk around a superblock copy").0.0
    }

    /// Changes the superblock in every place.
    pub(crate) fn edit_superblocks(&self, change: impl Fn(&mut Superblock)) {
        for copy in 0..2 {
            self.edit_superblock_copy(copy, &change);
        }
    }

    /// Changes one copy of the superblock on every device.
    pub(crate) fn edit_superblock_copy(&self, copy: usize, change: impl Fn(&mut Superblock)) {
        for device in &self.devices {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            device.read_at(&mut bytes, OFFSETS[copy].0).expect("reads");
            let superblock = Superblock::mut_from_bytes(&mut bytes).expect("has its size");
            change(superblock);
            superblock.update_checksum();
            device.write_at(&bytes, OFFSETS[copy].0).expect("writes");
        }
    }

    /// Sets all superblocks of a device to the previous commit.
    pub(crate) fn put_one_commit_back(&self, device: usize) {
        for offset in &OFFSETS[..2] {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            self.devices[device].read_at(&mut bytes, offset.0).expect("reads");
            let superblock = Superblock::mut_from_bytes(&mut bytes).expect("has its size");
            superblock.generation -= 1;
            let before = superblock
                .super_roots
                .iter()
                .find(|backup| backup.tree_root_gen == superblock.generation);
            let before = before.expect("the last superblock remembers the commit before");
            superblock.root = before.tree_root;
            superblock.root_level = before.tree_root_level;
            superblock.chunk_root = before.chunk_root;
            superblock.chunk_root_generation = before.chunk_root_gen;
            superblock.update_checksum();
            self.write(device, offset.0, &bytes);
        }
    }

    /// Overwrites the copy of a block that lies on a device.
    pub(crate) fn lose_copy(&self, device: usize, logical: u64) {
        let ranges = self.volume.map(Logical(logical), self.nodesize() as u64).expect("mapped");
        let is_there = |devid| Arc::ptr_eq(self.device_with(devid), &self.devices[device]);
        let copy = ranges[0].mirrors.iter().find(|place| is_there(place.devid));
        let copy = copy.expect("the device has a copy");
        self.write(device, copy.physical.0, &vec![0; self.nodesize()]);
    }

    /// Overwrites bytes of a device.
    pub(crate) fn write(&self, device: usize, at: u64, bytes: &[u8]) {
        self.devices[device].write_at(bytes, at).expect("writes");
    }

    /// Moves bytes of the first device around the places of superblocks.
    pub(crate) fn move_bytes(&self, from: u64, to: u64, len_bytes: u64) {
        let device = &self.devices[0];
        let superblocks = OFFSETS.map(|offset| {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            let is_there = device.read_at(&mut bytes, offset.0).is_ok();
            (offset.0, is_there.then_some(bytes))
        });
        let mut bytes = vec![0; len_bytes as usize];
        device.read_at(&mut bytes, from).expect("reads");
        device.write_at(&bytes, to).expect("writes");
        for (at, bytes) in superblocks {
            if let Some(bytes) = bytes {
                device.write_at(&bytes, at).expect("writes");
            }
        }
    }

    /// Inverts a byte of one copy of the data or block at a logical address, or of its parity.
    pub(crate) fn invert(&self, logical: u64, copy: usize, parity: bool) {
        let ranges = self.volume.map(Logical(logical), 1).expect("mapped");
        let places = if parity { &ranges[0].parities } else { &ranges[0].mirrors };
        let place = places[copy];
        let device = self.device_with(place.devid);
        let mut byte = [0];
        device.read_at(&mut byte, place.physical.0).expect("reads");
        device.write_at(&[!byte[0]], place.physical.0).expect("writes");
    }

    fn device_with(&self, devid: u64) -> &Arc<MemoryDevice> {
        let number = self.volume.devices().iter().position(|device| device.devid() == devid);
        let name = self.volume.devices()[number.expect("known")].name();
        self.devices.iter().find(|device| device.name() == name).expect("present")
    }

    /// The bytes of a block, from its first copy.
    pub(crate) fn block(&self, logical: u64) -> Vec<u8> {
        let ranges = self.volume.map(Logical(logical), self.nodesize() as u64).expect("mapped");
        let mut bytes = vec![0; self.nodesize()];
        let mut rest = bytes.as_mut_slice();
        for range in ranges {
            let (part, after) = rest.split_at_mut(range.len_bytes as usize);
            let place = range.mirrors[0];
            self.device_with(place.devid).read_at(part, place.physical.0).expect("reads");
            rest = after;
        }
        bytes
    }

    /// Changes a block on every copy and makes its checksum right.
    pub(crate) fn edit_block(&self, logical: u64, change: impl FnOnce(&mut [u8])) {
        self.edit_copies(logical, 0..usize::MAX, change);
    }

    /// Changes some copies of a block and makes the checksum right.
    pub(crate) fn edit_copies(
        &self,
        logical: u64,
        copies: std::ops::Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) {
        let mut bytes = self.block(logical);
        change(&mut bytes);
        let csum = self.volume.checksum_type().compute_block(&bytes);
        bytes[..32].copy_from_slice(&csum.padded());
        let ranges = self.volume.map(Logical(logical), bytes.len() as u64).expect("mapped");
        let mut rest = bytes.as_slice();
        for range in ranges {
            let (part, after) = rest.split_at(range.len_bytes as usize);
            for (copy, place) in range.mirrors.iter().enumerate() {
                if copies.contains(&copy) {
                    self.device_with(place.devid).write_at(part, place.physical.0).expect("writes");
                }
            }
            rest = after;
        }
    }

    /// Changes the header of a block.
    pub(crate) fn edit_header(&self, logical: u64, change: impl FnOnce(&mut Header)) {
        self.edit_block(logical, |bytes| change(Header::mut_from_prefix(bytes).expect("fits").0));
    }

    /// Address and level of the root of a tree.
    pub(crate) fn root(&self, tree: u64) -> u64 {
        match tree {
            objectid::ROOT_TREE => self.superblock().root().0,
            objectid::CHUNK_TREE => self.superblock().chunk_root().0,
            _ => {
                let found = self.find(objectid::ROOT_TREE, |key, _| {
                    key.objectid == tree && key.item_type == ItemType::ROOT_ITEM
                });
                RootItem::parse(&found.data).expect("a root item").bytenr().0
            }
        }
    }

    /// All blocks of a tree, parents before children, leaves in order.
    pub(crate) fn blocks(&self, tree: u64) -> Vec<u64> {
        self.blocks_under(self.root(tree))
    }

    fn blocks_under(&self, root: u64) -> Vec<u64> {
        let mut blocks = vec![root];
        let mut next = 0;
        while next < blocks.len() {
            let bytes = self.block(blocks[next]);
            let node = Node::parse(&bytes).expect("sound");
            if !node.is_leaf() {
                blocks.extend(node.key_pointers().iter().map(|pointer| pointer.blockptr().0));
            }
            next += 1;
        }
        blocks
    }

    /// The leaves of a tree, in order.
    pub(crate) fn leaves(&self, tree: u64) -> Vec<u64> {
        self.leaves_under(self.root(tree))
    }

    fn leaves_under(&self, root: u64) -> Vec<u64> {
        let is_leaf = |block: &u64| Node::parse(&self.block(*block)).expect("sound").is_leaf();
        self.blocks_under(root).into_iter().filter(is_leaf).collect()
    }

    /// A leaf of a tree, except its first, that refers to no data.
    #[track_caller]
    pub(crate) fn leaf_without_data(&self, tree: u64) -> u64 {
        let has_data = |leaf: &u64| {
            let bytes = self.block(*leaf);
            let mut items = Node::parse(&bytes).expect("sound").iter_items();
            items.any(|(key, _)| key.item_type == ItemType::EXTENT_DATA)
        };
        let mut leaves = self.leaves(tree).into_iter().skip(1);
        leaves.find(|leaf| !has_data(leaf)).expect("a leaf of names")
    }

    /// All items of the log of a subvolume in order.
    pub(crate) fn log_items(&self, subvolume: u64) -> Vec<Found> {
        let logs = self.items_under(self.log_root());
        let log = logs.iter().find(|log| log.key.offset == subvolume).expect("it has a log");
        self.items_under(RootItem::parse(&log.data).expect("a root item").bytenr().0)
    }

    /// All items of a tree in order.
    pub(crate) fn items(&self, tree: u64) -> Vec<Found> {
        self.items_under(self.root(tree))
    }

    fn items_under(&self, root: u64) -> Vec<Found> {
        let mut items = Vec::new();
        for leaf in self.leaves_under(root) {
            let bytes = self.block(leaf);
            let node = Node::parse(&bytes).expect("sound");
            items.extend(node.iter_items().enumerate().map(|(slot, (key, data))| Found {
                leaf,
                slot,
                key,
                data: data.to_vec(),
            }));
        }
        items
    }

    /// The first item of a tree that `is_wanted` accepts.
    #[track_caller]
    pub(crate) fn find(&self, tree: u64, is_wanted: impl Fn(&Key, &[u8]) -> bool) -> Found {
        let mut items = self.items(tree).into_iter();
        items.find(|item| is_wanted(&item.key, &item.data)).expect("the image has such an item")
    }

    /// The first item of a type that does not start its leaf: removing it leaves the parent right.
    #[track_caller]
    pub(crate) fn find_type(&self, tree: u64, item_type: ItemType) -> Found {
        let mut items = self.items(tree).into_iter();
        items
            .find(|item| item.key.item_type == item_type && item.slot > 0)
            .expect("the image has such an item")
    }

    /// Changes the items of a leaf.
    pub(crate) fn edit_leaf(&self, leaf: u64, change: impl FnOnce(&mut Vec<(Key, Vec<u8>)>)) {
        self.edit_block(leaf, |bytes| {
            let node = Node::parse(bytes).expect("sound");
            let mut items: Vec<(Key, Vec<u8>)> =
                node.iter_items().map(|(key, data)| (key, data.to_vec())).collect();
            change(&mut items);
            write_leaf(bytes, &items);
        });
    }

    /// Changes the data of an item, which may change its length.
    pub(crate) fn edit(&self, found: &Found, change: impl FnOnce(&mut Vec<u8>)) {
        self.edit_leaf(found.leaf, |items| change(&mut items[found.slot].1));
    }

    /// Changes an item that has a fixed layout.
    pub(crate) fn edit_as<T>(&self, found: &Found, change: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + zerocopy::KnownLayout + zerocopy::Unaligned,
    {
        self.edit(found, |data| change(T::mut_from_prefix(data).expect("fits").0));
    }

    /// Gives an item another key; its place in the leaf stays.
    pub(crate) fn rekey(&self, found: &Found, key: Key) {
        self.edit_leaf(found.leaf, |items| items[found.slot].0 = key);
    }

    /// Removes an item.
    pub(crate) fn remove(&self, found: &Found) {
        self.edit_leaf(found.leaf, |items| {
            items.remove(found.slot);
        });
    }

    /// Inserts an item in order of keys. In a tree that shares nothing, a neighbour takes items that
    /// the leaf has no room for.
    #[track_caller]
    pub(crate) fn insert(&self, tree: u64, key: Key, data: &[u8]) {
        let mut leaf = self.leaf_for(tree, key);
        let len = data.len() + ITEM_HEADER_SIZE;
        if self.room(leaf) < len && !objectid::is_file_tree(tree) {
            self.make_room(tree, leaf, len);
            leaf = self.leaf_for(tree, key);
        }
        let mut at = 0;
        self.edit_leaf(leaf, |items| {
            at = items.partition_point(|item| item.0 < key);
            items.insert(at, (key, data.to_vec()));
        });
        if at == 0 {
            self.set_first_key(tree, key);
        }
    }

    /// Tells the nodes above the first leaf that it begins with this key.
    fn set_first_key(&self, tree: u64, key: Key) {
        let mut block = self.root(tree);
        let first_child = |block| {
            let bytes = self.block(block);
            let node = Node::parse(&bytes).expect("sound");
            (!node.is_leaf()).then(|| node.key_pointers()[0].blockptr().0)
        };
        while let Some(child) = first_child(block) {
            self.edit_block(block, |bytes| {
                KeyPointer::mut_from_prefix(&mut bytes[HEADER_SIZE..]).expect("fits").0.key =
                    key.into();
            });
            block = child;
        }
    }

    #[track_caller]
    fn leaf_for(&self, tree: u64, key: Key) -> u64 {
        let leaves = self.leaves(tree);
        let fits = |leaf: &&u64| {
            let bytes = self.block(**leaf);
            Node::parse(&bytes).expect("sound").first_key().is_some_and(|first| first < key)
        };
        *leaves.iter().rev().find(fits).unwrap_or(&leaves[0])
    }

    fn room(&self, leaf: u64) -> usize {
        Node::parse(&self.block(leaf)).expect("sound").leaf_free_space()
    }

    /// Moves items of a leaf to a neighbour under the same parent until the leaf has room for `len`
    /// bytes, and the neighbour too if all items are equally long.
    #[track_caller]
    fn make_room(&self, tree: u64, leaf: u64, len: usize) {
        let position = |parent: &u64| {
            let bytes = self.block(*parent);
            let node = Node::parse(&bytes).expect("sound");
            let children = node.key_pointers().iter().map(|pointer| pointer.blockptr().0);
            let children: Vec<u64> = children.collect();
            let slot = children.iter().position(|child| *child == leaf)?;
            Some((*parent, slot, children))
        };
        let inner = self.blocks(tree).into_iter();
        let inner =
            inner.filter(|block| !Node::parse(&self.block(*block)).expect("sound").is_leaf());
        let mut parents = inner.collect::<Vec<_>>().into_iter();
        let (parent, slot, children) = parents.find_map(|p| position(&p)).expect("a parent");
        let is_roomy =
            |other: &usize| children.get(*other).is_some_and(|other| self.room(*other) >= 8 * len);
        let other = [slot + 1, slot.wrapping_sub(1)].into_iter().find(is_roomy);
        let other = other.expect("a neighbour with room");
        while self.room(leaf) < 2 * len {
            let mut moved = None;
            self.edit_leaf(leaf, |items| {
                let at = if other > slot { items.len() - 1 } else { 0 };
                moved = Some(items.remove(at));
            });
            self.edit_leaf(children[other], |items| {
                let at = if other > slot { 0 } else { items.len() };
                items.insert(at, moved.take().expect("was moved"));
            });
        }
        let right = slot.max(other);
        let first = Node::parse(&self.block(children[right])).expect("sound").key(0);
        self.edit_block(parent, |bytes| {
            let at = HEADER_SIZE + right * KEY_POINTER_SIZE;
            let pointer = KeyPointer::mut_from_prefix(&mut bytes[at..]).expect("fits").0;
            pointer.key = first.into();
        });
    }
}

fn write_leaf(bytes: &mut [u8], items: &[(Key, Vec<u8>)]) {
    let data_bytes: usize = items.iter().map(|item| item.1.len()).sum();
    let most = bytes.len() - HEADER_SIZE;
    assert!(data_bytes + items.len() * ITEM_HEADER_SIZE <= most, "the leaf has no room");
    let mut end = most;
    for (slot, (key, data)) in items.iter().enumerate() {
        end -= data.len();
        let header = ItemHeader {
            key: (*key).into(),
            offset: (end as u32).into(),
            size: (data.len() as u32).into(),
        };
        let at = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
        bytes[at..at + ITEM_HEADER_SIZE].copy_from_slice(header.as_bytes());
        bytes[HEADER_SIZE + end..][..data.len()].copy_from_slice(data);
    }
    Header::mut_from_prefix(bytes).expect("fits").0.nritems = (items.len() as u32).into();
}

fn load(file: &PathBuf) -> MemoryDevice {
    let name = file.display().to_string();
    let file = File::open(file).expect("an image file opens");
    let len_bytes = file.metadata().expect("has a length").len();
    let device = MemoryDevice::new(name, len_bytes);
    let mut piece = vec![0; PIECE_BYTES];
    for at in (0..len_bytes).step_by(PIECE_BYTES) {
        file.read_exact_at(&mut piece, at).expect("reads");
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(&piece, at).expect("writes");
        }
    }
    device
}

fn open(devices: &[Arc<MemoryDevice>]) -> Result<Volume, String> {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    Volume::open(devices, &OpenOptions::default()).map_err(|error| error.to_string())
}
