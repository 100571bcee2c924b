//! Trees that are needed for writing are checked first: if one is damaged, opening for writing is
//! refused, and reading goes on with what is left.

use std::sync::Arc;

use larder::{Filesystem, OpenOptions};
use larder_btree::{BlockCache, Tree, TreeRoot};
use larder_format::item::{DevExtent, RootItem};
use larder_format::node::{HEADER_SIZE, Header, ItemHeader};
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CSUM_TREE, DATA_RELOC_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, FS_TREE,
    UUID_TREE,
};
use larder_format::{ItemType, Key, Logical, Node, Profile};
use larder_testkit::assert_same;
use larder_volume::Volume;
use zerocopy::FromBytes;

use crate::memory::Memory;
use crate::support;

const TREES: [(u64, &str); 8] = [
    (EXTENT_TREE, "extent tree"),
    (DEV_TREE, "device tree"),
    (CSUM_TREE, "checksum tree"),
    (FREE_SPACE_TREE, "free space tree"),
    (BLOCK_GROUP_TREE, "block group tree"),
    (UUID_TREE, "uuid tree"),
    (FS_TREE, "top-level subvolume"),
    (DATA_RELOC_TREE, "data relocation tree"),
];

/// A file system in memory.
struct Patient(Memory);

impl Patient {
    fn new(profile: Profile, devices: usize) -> Self {
        Self(Memory::new(profile, profile, devices))
    }

    fn copy(&self) -> Self {
        Self(self.0.copy())
    }

    fn volume(&self) -> Volume {
        let options = larder_volume::OpenOptions { write: true, ..Default::default() };
        Volume::open(self.0.devices(), &options).unwrap()
    }

    /// The address of a tree's root.
    fn root(&self, tree: u64) -> Logical {
        let volume = Arc::new(self.volume());
        let root = TreeRoot::of_root_tree(&volume.superblock());
        let roots = Tree::new(Arc::new(BlockCache::new(volume, 1 << 20)), root);
        let item = roots.get(Key::new(tree, ItemType::ROOT_ITEM, 0)).unwrap();
        RootItem::parse(&item.expect("there is such a tree")).unwrap().bytenr()
    }

    fn copies(&self) -> usize {
        self.volume().copies(self.root(EXTENT_TREE))
    }

    /// Scrambles copies of a block.
    fn scramble(&self, logical: Logical, copies: std::ops::Range<usize>) {
        let volume = self.volume();
        let nodesize = u64::from(volume.nodesize());
        let part = &volume.map(logical, nodesize).unwrap()[0];
        for place in &part.mirrors[copies] {
            let device = volume.device(place.devid).unwrap().device().unwrap().clone();
            device.write_at(&[0x5a; 1000], place.physical.0 + 1000).unwrap();
        }
    }

    /// Changes a block and gives it the right checksum.
    fn edit(&self, logical: Logical, change: impl FnOnce(&mut [u8])) {
        let volume = self.volume();
        let mut block = vec![0; volume.nodesize() as usize];
        volume.read_copy(logical, 0, &mut block).unwrap();
        change(&mut block);
        let checksum = volume.checksum_type().compute_block(&block);
        block[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        volume.write(logical, &block).unwrap();
    }

    fn open(&self, write: bool) -> larder::Result<Filesystem> {
        let options = OpenOptions::new().write(write).commit_interval(None);
        options.open_devices(self.0.devices())
    }

    /// Opening for writing is refused, naming `what`, and nothing was written.
    #[track_caller]
    fn assert_refused(&self, what: &[&str]) {
        let before = self.copy();
        let error = self.open(true).map(drop).expect_err("it cannot be written").to_string();
        for part in what.iter().chain(&["mount -o ro", "larder check"]) {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
        for (device, before) in self.0.0.iter().zip(&before.0.0) {
            device.each_difference(before, |at, _| panic!("written at {at}"));
        }
    }
}

#[test]
fn without_one_of_its_trees_a_file_system_is_only_read() {
    let profiles = [
        (Profile::Single, 1),
        (Profile::Dup, 1),
        (Profile::Raid0, 2),
        (Profile::Raid1, 2),
        (Profile::Raid1c3, 3),
        (Profile::Raid1c4, 4),
        (Profile::Raid10, 4),
    ];
    for (profile, devices) in profiles {
        let sound = Patient::new(profile, devices);
        let manifest = support::manifest(&sound.open(false).unwrap());
        for (tree, name) in TREES {
            let wounded = sound.copy();
            let root = wounded.root(tree);
            wounded.scramble(root, 0..wounded.copies());
            wounded.assert_refused(&[name, &format!("block {root} at level")]);
            let fs = wounded.open(false).unwrap();
            match tree {
                FS_TREE => assert!(fs.subvolume("/").and_then(|top| top.root()).is_err()),
                CSUM_TREE => assert!(fs.subvolume("/").unwrap().open_file("folder/file").is_ok()),
                _ => assert_same(&manifest, &support::manifest(&fs)),
            }
        }
    }
}

#[test]
fn a_sound_copy_of_a_tree_is_enough() {
    for (profile, devices) in [(Profile::Dup, 1), (Profile::Raid1c3, 3), (Profile::Raid10, 4)] {
        let sound = Patient::new(profile, devices);
        for (tree, name) in TREES {
            let mut healed = 0;
            for copy in 0..sound.copies() {
                let wounded = sound.copy();
                wounded.scramble(wounded.root(tree), copy..copy + 1);
                let fs = wounded.open(true).unwrap_or_else(|error| panic!("{error}"));
                fs.subvolume("/").unwrap().create("new", 0o644).unwrap();
                fs.sync().unwrap();
                healed += fs.stats().volume.healed;
            }
            assert!(healed > 0, "no copy of the {name} was healed");
        }
    }
}

/// The header of the last item of a leaf, and its data.
fn last_item(block: &mut [u8]) -> (&mut ItemHeader, &mut [u8]) {
    let last = Node::parse(block).unwrap().nritems() - 1;
    let (head, data) = block.split_at_mut(HEADER_SIZE + (last + 1) * size_of::<ItemHeader>());
    let (_, header) = ItemHeader::mut_from_suffix(head).unwrap();
    let start = HEADER_SIZE + header.offset.get() as usize;
    let gap = start - (HEADER_SIZE + (last + 1) * size_of::<ItemHeader>());
    let len = header.size.get() as usize;
    (header, &mut data[gap..gap + len])
}

/// Moves the last item of a leaf by a sector.
fn move_last(block: &mut [u8]) {
    let (header, _) = last_item(block);
    let key = header.key.get();
    header.key = Key::new(key.objectid, key.item_type, key.offset + 4096).into();
}

#[test]
fn chunks_and_their_descriptions_agree() {
    let sound = Patient::new(Profile::Dup, 1);
    let devices = sound.root(DEV_TREE);
    let groups = sound.root(BLOCK_GROUP_TREE);

    let wounded = sound.copy();
    wounded.edit(devices, move_last);
    wounded.assert_refused(&["device tree", "no chunk has just this extent"]);

    let wounded = sound.copy();
    wounded.edit(devices, |block| {
        let (_, data) = last_item(block);
        DevExtent::mut_from_bytes(data).unwrap().length += 4096;
    });
    wounded.assert_refused(&["device tree", "no chunk has just this extent"]);

    let wounded = sound.copy();
    wounded.edit(devices, |block| {
        Header::mut_from_prefix(block).unwrap().0.nritems -= 1;
    });
    wounded.assert_refused(&["device tree", "extents for", "stripes of chunks"]);

    let wounded = sound.copy();
    wounded.edit(groups, |block| {
        let (header, _) = last_item(block);
        let key = header.key.get();
        header.key = Key::new(1 << 50, key.item_type, key.offset).into();
    });
    wounded.assert_refused(&["block group tree", "it lies in no chunk"]);

    let wounded = sound.copy();
    wounded.edit(groups, |block| {
        Header::mut_from_prefix(block).unwrap().0.nritems -= 1;
    });
    wounded.assert_refused(&["block group tree", "has no item"]);
}

/// Calls `change` with the key of each item of a leaf, whose type it may change, and with the data.
fn each_item(block: &mut [u8], mut change: impl FnMut(Key, &mut u8, &mut [u8])) {
    let items = Node::parse(block).unwrap().items().to_vec();
    for (slot, item) in items.into_iter().enumerate() {
        let start = HEADER_SIZE + item.offset.get() as usize;
        let (key, mut item_type) = (item.key.get(), item.key.item_type);
        change(key, &mut item_type, &mut block[start..start + item.size.get() as usize]);
        let at = HEADER_SIZE + slot * size_of::<ItemHeader>();
        ItemHeader::mut_from_prefix(&mut block[at..]).unwrap().0.key.item_type = item_type;
    }
}

/// Where no reference is left that names a directory, two names in each of twelve directories make
/// thousands of paths out of a few names, and forty make more than anybody walks.
#[test]
fn a_directory_is_entered_under_one_of_its_names() {
    const DEPTH: usize = 12;
    /// A type that no item has.
    const NO_TYPE: u8 = 14;
    let patient = Patient::new(Profile::Single, 1);
    let fs = patient.open(true).unwrap();
    let many = fs.subvolume("/").unwrap().create_subvolume("many").unwrap();
    let id = many.id();
    let mut path = std::path::PathBuf::new();
    for _ in 0..DEPTH {
        many.create_directory(path.join("right"), 0o755).unwrap();
        path.push("left");
        many.create_directory(&path, 0o755).unwrap();
    }
    drop(many);
    fs.sync().unwrap();
    drop(fs);
    let mut left = std::collections::HashMap::new();
    patient.edit(patient.root(id), |block| {
        let name_of = |data: &[u8]| data.get(30..).map(<[u8]>::to_vec).unwrap_or_default();
        let is_name = |key: Key| [ItemType::DIR_ITEM, ItemType::DIR_INDEX].contains(&key.item_type);
        each_item(block, |key, item_type, data| {
            if is_name(key) && name_of(data) == b"left" {
                left.insert(key.objectid, data[..17].to_vec());
            }
            if key.item_type == ItemType::INODE_REF && key.objectid > 256 {
                *item_type = NO_TYPE;
            }
        });
        assert_eq!(left.len(), DEPTH);
        each_item(block, |key, _, data| {
            if is_name(key) && name_of(data) == b"right" {
                data[..17].copy_from_slice(&left[&key.objectid]);
            }
        });
    });
    let rescue = larder::Rescue { ignore_bad_roots: true, ..larder::Rescue::NONE };
    let fs = OpenOptions::new().rescue(rescue).open_devices(patient.0.devices()).unwrap();
    let root = fs.subvolume("/many").unwrap().root().unwrap();
    let (found, refused): (Vec<_>, Vec<_>) = root.walk().partition(Result::is_ok);
    assert_eq!((found.len(), refused.len()), (2 * DEPTH, DEPTH));
    // Elsewhere none of them is followed.
    let fs = patient.open(false).unwrap();
    let root = fs.subvolume("/many").unwrap().root().unwrap();
    assert!(root.walk().all(|entry| entry.is_err()));
}
