//! Blocks that the kernel wrote are found sound.

use larder_format::feature::IncompatFlags;
use larder_format::item::{BackRef, Extent, QgroupStatusItem, qgroup_status_flags};
use larder_format::tree_check::{Context, check_node};
use larder_format::{ItemType, Node};
use larder_testkit::KernelImage;
use larder_testkit::content::Content;
use larder_testkit::image::{ImageSpec, Quota};
use larder_testkit::matrix::matrix;

use crate::scan::{for_each_block, read_superblock};

/// Images of the matrix that have different items, by name.
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
                // Blocks of mkfs.btrfs's first transaction, which it replaces before it ends, were
                // never marked written.
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

/// Items of the newest kernels that older tools do not know: the first owner of each extent of
/// data, inline and before all other references, and the transaction since which that is so.
#[test]
fn simple_quotas_name_the_first_owner_of_data() {
    let spec = ImageSpec::new("owners").quota(Quota::Simple);
    let image = KernelImage::build(&spec, &Content::new(1));
    let superblock = read_superblock(&image.devices()[0]);
    assert!(superblock.has_incompat(IncompatFlags::SIMPLE_QUOTA));
    let (mut owners, mut statuses) = (0, 0);
    for_each_block(&image.devices()[0], &superblock, |found| {
        let node = Node::parse(&found.bytes).expect("the kernel wrote it");
        if !node.is_leaf() {
            return;
        }
        for (key, data) in node.iter_items() {
            match key.item_type {
                ItemType::EXTENT_ITEM => {
                    let extent = Extent::parse(key, data).expect("the kernel wrote it");
                    let refs = extent.back_refs().map(|inline| inline.expect("sound").back_ref);
                    let is_owner = |back_ref: BackRef| matches!(back_ref, BackRef::Owner { .. });
                    let places: Vec<_> = refs.map(is_owner).collect();
                    assert!(places.iter().skip(1).all(|is_owner| !is_owner), "only the first");
                    owners += usize::from(places.first() == Some(&true));
                }
                ItemType::QGROUP_STATUS => {
                    let (status, enabled) = QgroupStatusItem::parse(data).expect("sound");
                    let is_simple = status.flags.get() & qgroup_status_flags::SIMPLE_MODE != 0;
                    assert!(is_simple && enabled.is_some_and(|generation| generation > 0));
                    statuses += 1;
                }
                _ => {}
            }
        }
    });
    assert!(owners > 0 && statuses > 0, "{owners} owners, {statuses} status items");
}
