//! Random mutants: a sound image with bytes of items, keys and headers changed, and checksums made
//! right.

use larder_device::MemoryDevice;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::objectid::{
    CHUNK_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, FS_TREE, ROOT_TREE,
};
use larder_rescue::repair::{Verdict, Wishes};
use larder_testkit::{Scratch, oracle};

use crate::damage::{Base, image};
use crate::patient::Patient;
use crate::random::Random;
use crate::support::{differ, prepare};

/// Mutants of each run.
const ROUNDS: u64 = 40;
const TREES: [u64; 7] =
    [FS_TREE, ROOT_TREE, EXTENT_TREE, CSUM_TREE, DEV_TREE, CHUNK_TREE, FREE_SPACE_TREE];

/// Changes one to three bits or bytes, and says where.
fn mutate(patient: &Patient, random: &mut Random) -> String {
    let tree = TREES[random.below(2 * TREES.len()).saturating_sub(TREES.len())];
    let items = patient.items(tree);
    let found = &items[random.below(items.len())];
    let start = match random.below(4) {
        0 => HEADER_SIZE + found.slot * ITEM_HEADER_SIZE,
        1 => 32,
        _ => {
            if !found.data.is_empty() {
                let at = random.below(found.data.len());
                let flip = 1 << random.below(8);
                patient.edit(found, |data| data[at] ^= flip);
            }
            return format!("tree {tree}: data of {}", found.key);
        }
    };
    let (at, flip) = (start + random.below(25), 1 << random.below(8));
    patient.edit_block(found.leaf, |bytes| bytes[at] ^= flip);
    format!("tree {tree}: byte {at} of leaf {}", found.leaf)
}

#[test]
fn mutants_are_healed_or_left() {
    let seed = larder_testkit::seed(34);
    let image = image(Base::Plain);
    let sound = Patient::load(image.devices());
    let (mut healed, mut refused) = (0, 0);
    for round in 0..ROUNDS * larder_testkit::effort() {
        let mut random = Random(seed << 32 | round);
        let patient = sound.copy();
        let what = mutate(&patient, &mut random);
        let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
        let wishes = Wishes { check_data_csum: true, ..Wishes::default() };
        let prepared = prepare(&patient, &wishes);
        assert!(!differ(&patient, &before), "{seed} {round} {what}: a byte changed");
        let Ok(prepared) = prepared else {
            refused += 1;
            continue;
        };
        match &prepared.verdict {
            Verdict::Proved => {}
            verdict => {
                println!("{what}: {verdict:?}");
                refused += 1;
                continue;
            }
        }
        let folder = Scratch::new();
        let names: Vec<_> = before.iter().map(|_| "device".into()).collect();
        prepared.apply(&names, &folder.path().join("undo")).expect("applies");
        let report = patient.check().expect("opens");
        assert!(report.is_clean(), "{seed} {round} {what}:\n{report}");
        let said = oracle::check(&patient.save(folder.path()), true);
        assert!(said.is_ok(), "{seed} {round} {what}: {said:?}");
        healed += 1;
    }
    println!("{healed} healed, {refused} sound or refused");
    assert!(healed > 0, "none was healed");
}
