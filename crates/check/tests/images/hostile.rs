//! No image makes a check panic, hang or run out of memory: random bytes of a small image change,
//! checksums are made right again, and the check runs to its end.

use crate::patient::Patient;
use crate::random::Random;
use larder_format::item::RootItem;
use larder_format::objectid::{CHUNK_TREE, ROOT_TREE};
use larder_format::{ItemType, Superblock};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, Quota};
use zerocopy::IntoBytes;

/// Images derived from each base image.
const ROUNDS: u64 = 400;

/// The blocks of every tree.
fn all_blocks(patient: &Patient) -> Vec<u64> {
    let mut blocks = patient.blocks(ROOT_TREE);
    blocks.extend(patient.blocks(CHUNK_TREE));
    let roots = patient.items(ROOT_TREE);
    let roots = roots.iter().filter(|item| item.key.item_type == ItemType::ROOT_ITEM);
    for root in roots {
        // A partly deleted subvolume has pointers to freed blocks.
        if RootItem::parse(&root.data).is_ok_and(|item| item.refs.get() > 0) {
            blocks.extend(patient.blocks(root.key.objectid));
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// A byte that is more likely than others to break a length, count or address.
fn byte(random: &mut Random, old: u8) -> u8 {
    match random.below(5) {
        0 => 0,
        1 => 0xff,
        2 => old.wrapping_add(1),
        3 => old ^ (1 << random.below(8)),
        _ => random.below(256) as u8,
    }
}

fn wound(patient: &Patient, blocks: &[u64], random: &mut Random) {
    for _ in 0..=random.below(3) {
        if random.below(20) == 0 {
            let at = 48 + random.below(size_of::<Superblock>() - 48);
            let value = byte(random, 0);
            patient.edit_superblocks(|superblock| superblock.as_mut_bytes()[at] = value);
            continue;
        }
        let block = blocks[random.below(blocks.len())];
        patient.edit_block(block, |bytes| {
            for _ in 0..=random.below(4) {
                // Mostly where headers, keys and item headers are.
                let end = [101, 400, 2000, bytes.len()][random.below(4)];
                let at = 32 + random.below(end - 32);
                bytes[at] = byte(random, bytes[at]);
            }
        });
    }
}

fn survive(spec: &ImageSpec, seed: u64) {
    let image = KernelImage::build(spec, &Content::new(seed));
    let sound = Patient::load(image.devices());
    let blocks = all_blocks(&sound);
    let (mut opened, mut found) = (0, 0);
    for round in 0..ROUNDS {
        let mut random = Random(seed << 32 | round);
        let patient = sound.copy();
        wound(&patient, &blocks, &mut random);
        if let Ok(report) = patient.check() {
            opened += 1;
            found += u64::from(!report.is_clean());
            let kept: usize = report.kinds.iter().map(|kind| kind.findings.len()).sum();
            assert!(kept <= 100 * report.kinds.len(), "{}: round {round}", spec.name());
        }
    }
    println!("{}: {opened} of {ROUNDS} opened, {found} with findings", spec.name());
    assert!(opened > ROUNDS / 2, "{}: {opened} opened", spec.name());
    assert!(found > opened / 2, "{}: {found} of {opened} found", spec.name());
}

#[test]
fn small_nodes_and_quotas() {
    let spec = ImageSpec::new("small-nodes").node_size(4096).without(Feature::NoHoles);
    survive(&spec.quota(Quota::Full), 1);
}

#[test]
fn a_power_cut() {
    survive(&ImageSpec::new("power-cut").power_cut(), 2);
}
