//! Images with changed bytes under right checksums: errors, never a panic or a hang.

use std::sync::Arc;

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot};
use larder_device::{Device, MemoryDevice};
use larder_format::item::RootItem;
use larder_format::objectid::EXTENT_TREE;
use larder_format::{ItemType, Key, Logical};
use larder_power_cuts::load;
use larder_testkit::{Content, ImageSpec, KernelImage};
use larder_volume::{OpenOptions, Volume};

use crate::support::{self, Files, Random, touch};

fn volume(device: MemoryDevice) -> Option<Arc<Volume>> {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(device);
    Volume::open(vec![device], &options).ok().map(Arc::new)
}

/// The addresses of the tree blocks.
fn tree_blocks(volume: &Arc<Volume>) -> Vec<Logical> {
    let cache = Arc::new(BlockCache::new(volume.clone(), 16 << 20));
    let roots = Tree::new(cache.clone(), TreeRoot::of_root_tree(&volume.superblock()));
    let root = roots.get(Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0)).unwrap().unwrap();
    let root = TreeRoot::of_item(EXTENT_TREE, &RootItem::parse(&root).unwrap());
    let extents = Tree::new(cache, root).range(.., Readahead::None);
    let keys = extents.map(|item| item.unwrap().key());
    let blocks = keys.filter(|key| key.item_type == ItemType::METADATA_ITEM);
    blocks.map(|key| Logical(key.objectid)).collect()
}

/// Changes a few bytes of a random tree block and gives it the right checksum.
fn damage(volume: &Volume, blocks: &[Logical], random: &mut Random) {
    let logical = blocks[random.below(blocks.len() as u64) as usize];
    let mut block = vec![0; volume.nodesize() as usize];
    volume.read_copy(logical, 0, &mut block).unwrap();
    for _ in 0..=random.below(3) {
        // Half of the time in the headers of items, the rest anywhere.
        let reach = if random.below(2) == 0 { 1500 } else { block.len() as u64 - 101 };
        let at = 101 + random.below(reach) as usize;
        block[at] = match random.below(4) {
            0 => 0,
            1 => 255,
            2 => block[at] ^ (1 << random.below(8)),
            _ => random.next() as u8,
        };
    }
    let checksum = volume.checksum_type().compute_block(&block);
    block[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
    volume.write(logical, &block).unwrap();
}

/// Does everything possible with the image, until something fails.
fn use_it(volume: Arc<Volume>, random: &mut Random) -> larder_transaction::Result<()> {
    let manager = support::open_volume(volume)?;
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 20)?;
    for subvolume in [5, 256, 257, 258] {
        if manager.trees().open(subvolume)?.is_some() {
            touch(&manager, subvolume, 10, random)?;
        }
    }
    manager.commit()?;
    files.churn(&manager, 10)?;
    manager.commit().map(drop)
}

fn attack(spec: &ImageSpec, seed: u64, attempts: u64) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::build(spec, &Content::new(seed));
    let base = load(&image.devices()[0]);
    let blocks = tree_blocks(&volume(base.snapshot()).unwrap());
    let mut random = Random(seed);
    let (mut opened, mut failed) = (0, 0);
    for _ in 0..attempts {
        let wounded = base.snapshot();
        let before = volume(wounded.snapshot()).unwrap();
        drop(before);
        let device = Arc::new(wounded);
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let writer = Volume::open(vec![device.clone() as Arc<dyn Device>], &options).unwrap();
        damage(&writer, &blocks, &mut random);
        drop(writer);
        let Some(volume) = volume(device.snapshot()) else { continue };
        opened += 1;
        failed += u64::from(use_it(volume, &mut random).is_err());
    }
    println!("{}: {opened} of {attempts} opened, {failed} failed later", spec.name());
    assert!(failed > 0 && failed < opened);
}

#[test]
fn changed_bytes_make_errors() {
    attack(&ImageSpec::new("default"), 51, 400);
}

#[test]
fn changed_bytes_make_errors_in_deep_trees() {
    attack(&ImageSpec::new("nodes-4k").node_size(4096), 52, 600);
}
