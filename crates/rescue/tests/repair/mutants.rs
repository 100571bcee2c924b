//! Random mutants: sound images with bytes of items, keys and headers changed in one place or in
//! three, and checksums made right.
//!
//! Each ends sound by both checkers, and every fourth of those is mounted by the kernel, which reads
//! all files; or no byte of it changes. With more effort than usual, what `btrfs check --repair`
//! does with the same mutants is counted beside.

use std::path::PathBuf;
use std::process::Command;

use larder_device::MemoryDevice;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::objectid::{
    CHUNK_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, FS_TREE, ROOT_TREE, UUID_TREE,
};
use larder_rescue::repair::{Verdict, Wishes};
use larder_testkit::guard::KernelMount;
use larder_testkit::{Manifest, Scratch, oracle};

use crate::damage::{Base, image};
use crate::patient::Patient;
use crate::random::Random;
use crate::support::{differ, prepare};

/// Mutants of each image in each run.
const ROUNDS: u64 = 14;
const BASES: [Base; 3] = [Base::Plain, Base::Quota, Base::Raid1];
const TREES: [u64; 8] =
    [FS_TREE, ROOT_TREE, EXTENT_TREE, CSUM_TREE, DEV_TREE, CHUNK_TREE, FREE_SPACE_TREE, UUID_TREE];

/// Changes a bit, and says where. The leaves in `spared` stay as they are: they may no longer be
/// ones that can be read.
fn mutate(
    patient: &Patient,
    items: &[Items],
    random: &mut Random,
    spared: &mut Vec<u64>,
) -> String {
    let (tree, items) = &items[random.below(2 * items.len()).saturating_sub(items.len())];
    let found = &items[random.below(items.len())];
    if spared.contains(&found.leaf) {
        return "nothing".into();
    }
    spared.push(found.leaf);
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

/// A tree and its items.
type Items = (u64, Vec<crate::patient::Found>);

#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    healed: u64,
    refused: u64,
    sound: u64,
    unopened: u64,
}

/// What `btrfs check --repair` did.
#[derive(Debug, Default)]
struct Theirs {
    sound: u64,
    unsound: u64,
}

impl Theirs {
    fn add(&mut self, files: &[PathBuf]) {
        let repair = ["60", "btrfs", "check", "--repair", "--force"];
        let _ = Command::new("timeout").args(repair).arg(&files[0]).output().expect("runs");
        match oracle::check(files, true) {
            Ok(_) => self.sound += 1,
            Err(_) => self.unsound += 1,
        }
    }
}

/// Treats one mutant; panics where a promise is broken.
pub(crate) fn treat(patient: &Patient, round: u64, what: &str, outcomes: &mut Outcomes) {
    let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
    let wishes = Wishes { check_data_csum: true, ..Wishes::default() };
    let prepared = prepare(patient, &wishes);
    assert!(!differ(patient, &before), "{what}: a byte changed");
    let Ok(prepared) = prepared else {
        outcomes.unopened += 1;
        return;
    };
    match &prepared.verdict {
        Verdict::Proved => {}
        Verdict::Sound => {
            outcomes.sound += 1;
            return;
        }
        Verdict::Refused(reasons) => {
            println!("{what}: refused: {}", reasons.join("; "));
            outcomes.refused += 1;
            return;
        }
    }
    let folder = Scratch::new();
    let names: Vec<PathBuf> = before.iter().map(|_| "device".into()).collect();
    prepared.apply(&names, &folder.path().join("undo")).expect("applies");
    let report = patient.check().expect("opens");
    assert!(report.is_clean(), "{what}:\n{report}");
    let saved = patient.save(folder.path());
    oracle::check(&saved, true).unwrap_or_else(|said| panic!("{what}: {said}"));
    if round.is_multiple_of(4) {
        let mount = KernelMount::try_open(&saved, "noatime");
        let mount = mount.unwrap_or_else(|said| panic!("{what}: {said}"));
        assert!(!Manifest::of_tree(mount.path()).entries.is_empty(), "{what}");
    }
    outcomes.healed += 1;
}

#[test]
fn mutants_are_healed_or_left() {
    let seed = larder_testkit::seed(34);
    let effort = larder_testkit::effort();
    for base in BASES {
        let image = image(base);
        let sound = Patient::load(image.devices());
        let items: Vec<Items> = TREES.iter().map(|tree| (*tree, sound.items(*tree))).collect();
        let (mut ours, mut theirs) = (Outcomes::default(), Theirs::default());
        for round in 0..ROUNDS * effort {
            let mut random = Random(seed << 32 | round);
            let patient = sound.copy();
            let mut changed = Vec::new();
            let places = if round % 3 == 2 { 3 } else { 1 };
            let what: Vec<String> =
                (0..places).map(|_| mutate(&patient, &items, &mut random, &mut changed)).collect();
            let what = format!("seed {seed}, {base:?} {round}: {}", what.join(", "));
            if effort > 1 && sound.devices().count() == 1 {
                let folder = Scratch::new();
                theirs.add(&patient.save(folder.path()));
            }
            treat(&patient, round, &what, &mut ours);
        }
        println!("{base:?}: {ours:?}; btrfs check --repair: {theirs:?}");
        assert!(ours.healed > 0, "none was healed");
    }
}
