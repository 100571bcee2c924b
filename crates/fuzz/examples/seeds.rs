//! Writes the seed corpus for libFuzzer: `seeds IMAGE CORPUS`.
//!
//! IMAGE is a sound image of one device, such as `mkfs.btrfs --rootdir` makes; CORPUS is a folder,
//! which gets a folder for each target. It also gets `crashed`, a copy of IMAGE with logs.

use std::path::Path;

use larder_fuzz::{Image, seeds};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, corpus] = &arguments[..] else { return Err("usage: seeds IMAGE CORPUS".into()) };
    let image = Image::read(Path::new(image))?;
    seeds::crash(&Path::new(corpus).join("crashed"))?;
    let targets = [
        ("superblock", seeds::superblocks(&image)),
        ("tree_block", seeds::tree_blocks(&image)),
        ("decompression", seeds::streams()),
        ("open_and_walk", seeds::patches()),
        ("stream_dump", seeds::snapshots()),
        ("stream_receive", seeds::snapshots()),
        ("log_replay", seeds::patches()),
    ];
    for (target, seeds) in targets {
        let folder = Path::new(corpus).join(target);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
