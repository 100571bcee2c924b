//! Walks every tree of an image, leaf by leaf, with each readahead mode and a cache of its own, and
//! prints how fast and what the counters say.
//!
//! `cargo run --release -p larder-btree --example walk_trees -- IMAGE…`

use std::sync::Arc;
use std::time::Instant;

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot};
use larder_device::{Access, Device, FileDevice};
use larder_format::ItemType;
use larder_format::item::RootItem;
use larder_volume::{OpenOptions, Volume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let open = |path: String| -> Result<Arc<dyn Device>, _> {
        FileDevice::open(path, Access::ReadOnly).map(|device| Arc::new(device) as _)
    };
    let devices = std::env::args().skip(1).map(open).collect::<Result<_, _>>()?;
    let volume = Arc::new(Volume::open(devices, &OpenOptions::default())?);
    for mode in [Readahead::None, Readahead::Forward, Readahead::ForwardAlways, Readahead::Back] {
        let cache = Arc::new(BlockCache::new(volume.clone(), 64 << 20));
        let since = Instant::now();
        let mut items = 0_u64;
        for tree in trees(&volume, &cache)? {
            let mut cursor = tree.cursor(mode);
            let mut more = if mode == Readahead::Back { cursor.prev() } else { cursor.next() };
            while more? {
                items += 1;
                more = if mode == Readahead::Back { cursor.prev() } else { cursor.next() };
            }
        }
        let (seconds, stats) = (since.elapsed().as_secs_f64(), cache.stats());
        println!(
            "{mode:?}: {items} items in {} blocks, {seconds:.3} s, {:.0} blocks/s, \
             asked ahead for {} blocks in {} requests, {} of them used",
            stats.misses,
            stats.misses as f64 / seconds,
            stats.readahead_blocks,
            stats.readahead_requests,
            stats.readahead_used,
        );
    }
    Ok(())
}

fn trees(
    volume: &Volume,
    cache: &Arc<BlockCache>,
) -> Result<Vec<Tree>, Box<dyn std::error::Error>> {
    let tree = |root| Tree::new(cache.clone(), root);
    let roots = tree(TreeRoot::of_root_tree(&volume.superblock()));
    let mut trees = vec![roots.clone(), tree(TreeRoot::of_chunk_tree(&volume.superblock()))];
    for item in roots.range(.., Readahead::ForwardAlways) {
        let item = item?;
        if item.key().item_type == ItemType::ROOT_ITEM {
            trees.push(tree(TreeRoot::of_item(item.key().objectid, &RootItem::parse(&item)?)));
        }
    }
    Ok(trees)
}
