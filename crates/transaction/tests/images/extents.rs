//! Walks over the extents of images of the kernel.

use std::fs::{self, File};
use std::ops::Range;
use std::sync::Arc;

use larder_btree::{BlockCache, Tree, TreeRoot, TreeView};
use larder_device::Device;
use larder_format::item::{Extent, RootItem};
use larder_format::objectid::EXTENT_TREE;
use larder_format::{ItemType, Key, Logical};
use larder_power_cuts::load;
use larder_testkit::{Content, ImageSpec, KernelImage};
use larder_transaction::extent::{FoundExtent, Referrer, extent_at, extents};
use larder_volume::{OpenOptions, Volume};
use rustix::fs::ioctl_ficlone;

use crate::support;

/// More references than fit into an item.
const FILES: usize = 1000;

/// A volume with its committed extent tree.
struct Image {
    volume: Arc<Volume>,
    tree: TreeView,
}

impl Image {
    /// An image with data that [`FILES`] files refer to, and more.
    fn new(spec: &ImageSpec) -> Self {
        let image = KernelImage::build(spec, &Content::new(larder_testkit::seed(61)));
        let mount = image.mount("subvolid=5");
        let original = mount.path().join("shared-by-many");
        fs::write(&original, vec![7; 1 << 16]).unwrap();
        mount.sync();
        let original = File::open(original).unwrap();
        for number in 0..FILES {
            let copy = File::create(mount.path().join(format!("shared-by-many-{number}"))).unwrap();
            ioctl_ficlone(&copy, &original).unwrap();
        }
        drop(original);
        drop(mount);
        let device: Arc<dyn Device> = Arc::new(load(&image.devices()[0]));
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let volume = Arc::new(Volume::open(vec![device], &options).unwrap());
        let cache = Arc::new(BlockCache::new(volume.clone(), 16 << 20));
        let roots = Tree::new(cache.clone(), TreeRoot::of_root_tree(&volume.superblock()));
        let root = roots.get(Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0)).unwrap().unwrap();
        let root = TreeRoot::of_item(EXTENT_TREE, &RootItem::parse(&root).unwrap());
        Self { volume, tree: TreeView::Committed(Tree::new(cache, root)) }
    }

    fn walk(&self, range: Range<u64>) -> Vec<FoundExtent> {
        extents(&self.tree, self.volume.nodesize(), range).map(Result::unwrap).collect()
    }

    /// The count of references in the item of an extent.
    fn count_in_item(&self, extent: &FoundExtent) -> u64 {
        let start = extent.range.start;
        let level_or_len = self.tree.range(
            Key::new(start, ItemType::EXTENT_ITEM, 0)
                ..=Key::new(start, ItemType::METADATA_ITEM, u64::MAX),
            larder_btree::Readahead::None,
        );
        let item = level_or_len.map(Result::unwrap).next().expect("the walk found it");
        Extent::parse(item.key(), &item).unwrap().item.refs.get()
    }
}

fn try_image(spec: &ImageSpec) {
    let image = Image::new(spec);
    let manager = support::open_volume(image.volume.clone()).unwrap();
    let (mut blocks, mut keyed) = (0, 0);
    for group in manager.space().groups() {
        let found = image.walk(group.range());
        let len = |extent: &FoundExtent| extent.range.end - extent.range.start;
        assert_eq!(found.iter().map(len).sum::<u64>(), group.used(), "{group:?}");
        for (at, extent) in found.iter().enumerate() {
            let references = extent.references(&image.tree).map(Result::unwrap);
            let counting: Vec<_> = references.filter(|it| Referrer::of(it).is_some()).collect();
            let count: u64 = counting.iter().map(|it| u64::from(it.count())).sum();
            assert_eq!(count, image.count_in_item(extent), "{extent:?}");
            blocks += u64::from(extent.is_tree_block);
            keyed += u64::from(counting.len() > FILES);
            for logical in [extent.range.start, extent.range.end - 1] {
                let nodesize = image.volume.nodesize();
                let there = extent_at(&image.tree, nodesize, Logical(logical)).unwrap();
                assert_eq!(there.as_ref(), Some(extent));
            }
            // A walk can be resumed after each.
            if at % 50 == 0 {
                assert_eq!(image.walk(extent.range.end..group.range().end), found[at + 1..]);
            }
        }
    }
    assert!(blocks > 0 && keyed > 0, "{blocks} blocks, {keyed} extents with many references");
    assert_eq!(extent_at(&image.tree, image.volume.nodesize(), Logical(0)).unwrap(), None);
}

#[test]
fn a_walk_finds_all_extents_with_all_references() {
    try_image(&ImageSpec::new("default"));
}

#[test]
fn a_range_that_ends_within_an_extent_is_an_error() {
    let image = Image::new(&ImageSpec::new("nodes-4k").node_size(4096));
    let first = image.walk(0..u64::MAX).into_iter().find(|extent| !extent.is_tree_block).unwrap();
    let cut = first.range.start..first.range.end - 4096;
    let mut walk = extents(&image.tree, image.volume.nodesize(), cut);
    let error = walk.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("leaves its block group"), "{error}");
}
