//! Every tree of images that the kernel made holds the items that btrfs-progs prints, in its order.

use std::sync::Arc;

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot};
use larder_device::{Access, Device, FileDevice};
use larder_format::item::RootItem;
use larder_format::{ItemType, Key};
use larder_testkit::{Content, ImageSpec, KernelImage, oracle};
use larder_volume::{OpenOptions, Volume};

fn open(image: &KernelImage) -> Arc<Volume> {
    let device = |path| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, Access::ReadOnly).expect("the image opens"))
    };
    let devices = image.devices().iter().map(device).collect();
    Arc::new(Volume::open(devices, &OpenOptions::default()).expect("the kernel made it"))
}

fn trees(volume: &Volume, cache: &Arc<BlockCache>) -> Vec<Tree> {
    let superblock = volume.superblock();
    let tree = |root| Tree::new(cache.clone(), root);
    let roots = tree(TreeRoot::of_root_tree(&superblock));
    let mut trees = vec![roots.clone(), tree(TreeRoot::of_chunk_tree(&superblock))];
    for item in roots.range(.., Readahead::ForwardAlways).map(Result::unwrap) {
        if item.key().item_type == ItemType::ROOT_ITEM {
            let root = RootItem::parse(&item).unwrap();
            trees.push(tree(TreeRoot::of_item(item.key().objectid, &root)));
        }
    }
    trees
}

/// Sizes of the items of one tree as `dump-tree` prints them.
fn printed(image: &KernelImage, tree: u64) -> Vec<usize> {
    let dump = oracle::dump_tree(image.devices(), &["-t", &tree.to_string()]).unwrap();
    let size = |line: &str| {
        let line = line.strip_prefix("\titem ")?;
        line.rsplit_once(" itemsize ").map(|(_, size)| size.trim().parse().unwrap())
    };
    dump.lines().filter_map(size).collect()
}

fn compare(spec: &ImageSpec) {
    let image = KernelImage::build(spec, &Content::new(1));
    let volume = open(&image);
    // A cache much smaller than the trees, too.
    for limit_bytes in [0, 64 << 20] {
        let cache = Arc::new(BlockCache::new(volume.clone(), limit_bytes));
        for tree in trees(&volume, &cache) {
            let expected = printed(&image, tree.root().tree);
            let items: Vec<_> =
                tree.range(.., Readahead::ForwardAlways).map(Result::unwrap).collect();
            let sizes: Vec<usize> = items.iter().map(|item| item.len()).collect();
            assert_eq!(sizes, expected, "tree {}", tree.root().tree);
            for item in items.iter().step_by(7) {
                assert_eq!(tree.get(item.key()).unwrap().as_deref(), Some(item.data()));
            }
            let mut cursor = tree.cursor(Readahead::Back);
            let mut backwards: Vec<Key> = Vec::new();
            while cursor.prev().unwrap() {
                backwards.extend(cursor.key());
            }
            assert!(items.iter().rev().map(larder_btree::ItemRef::key).eq(backwards));
        }
    }
}

#[test]
fn default_image() {
    compare(&ImageSpec::new("btree-default"));
}

#[test]
fn small_nodes_make_deep_trees() {
    compare(&ImageSpec::new("btree-nodes-4k").node_size(4 << 10));
}

#[test]
fn large_nodes() {
    compare(&ImageSpec::new("btree-nodes-64k").node_size(64 << 10));
}
