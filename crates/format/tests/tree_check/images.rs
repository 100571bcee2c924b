//! What the kernel wrote is found sound.

use larder_format::Node;
use larder_format::tree_check::{Context, check_node};
use larder_testkit::KernelImage;
use larder_testkit::matrix::matrix;

use crate::scan::{for_each_block, read_superblock};

/// Images of the matrix that differ in what items they hold, by name.
const IMAGES: [&str; 14] = [
    "default",
    "nodes-4k",
    "nodes-64k-blake2",
    "nodes-4k-sha256",
    "raid10-4-devices",
    "raid6-data-raid1c3-metadata",
    "mixed",
    "zlib-9-forced",
    "oldest",
    "quota",
    "simple-quota",
    "balanced",
    "device-replaced",
    "power-cut-nodes-4k-zstd-holes",
];

#[test]
fn nothing_that_the_kernel_wrote_is_refused() {
    let cases: Vec<_> =
        matrix().into_iter().filter(|case| IMAGES.contains(&case.spec.name())).collect();
    assert_eq!(cases.len(), IMAGES.len(), "the matrix has these images");
    for case in cases {
        let name = case.spec.name();
        let image = KernelImage::build(&case.spec, &case.content);
        let mut blocks = 0;
        for device in image.devices() {
            let superblock = read_superblock(device);
            let context = Context::new(&superblock);
            for_each_block(device, &superblock, |found| {
                // What mkfs.btrfs starts from, and replaces before it ends, was never marked written.
                if found.header().generation.get() == 1 {
                    return;
                }
                let at = found.header().bytenr();
                let node = Node::parse(&found.bytes)
                    .unwrap_or_else(|error| panic!("{name}, block {at}: {error}"));
                check_node(node, &context)
                    .unwrap_or_else(|error| panic!("{name}, block {at}: {error}"));
                blocks += 1;
            });
        }
        assert!(blocks > 50, "{name}: only {blocks} blocks were found");
        println!("{name}: {blocks} blocks");
    }
}
