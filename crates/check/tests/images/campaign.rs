//! Both checkers on the same mutants: the check finds all that `btrfs check` finds.
//!
//! A mutant is an image that the kernel made, with one field of an item, key, pointer or header
//! changed and checksums made right. Items of every type of every tree take turns.

use std::collections::BTreeMap;

use larder_format::item::RootItem;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE, KEY_POINTER_SIZE};
use larder_format::objectid::{CHUNK_TREE, ROOT_TREE};
use larder_format::{ItemType, Node};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, Quota, Scratch, effort, oracle};

use crate::patient::{Found, Patient};
use crate::random::Random;

/// Mutants of each image.
const ROUNDS: u64 = 40;

/// The part to change.
enum Target<'a> {
    Data(&'a Found),
    Key(&'a Found),
    Header(u64),
    Pointer(u64),
}

/// All parts of an image that can be changed.
struct Targets {
    /// Items by tree and type, so that rare ones are chosen as often as others.
    items: Vec<Vec<Found>>,
    leaves: Vec<u64>,
    inner: Vec<u64>,
}

impl Targets {
    fn of(patient: &Patient) -> Self {
        let roots = patient.items(ROOT_TREE).into_iter().filter(|item| {
            item.key.item_type == ItemType::ROOT_ITEM
                // A partly deleted subvolume has pointers to freed blocks.
                && RootItem::parse(&item.data).is_ok_and(|root| root.refs.get() > 0)
        });
        let trees = [ROOT_TREE, CHUNK_TREE].into_iter().chain(roots.map(|root| root.key.objectid));
        let (mut items, mut blocks) = (BTreeMap::<_, Vec<Found>>::new(), Vec::new());
        for tree in trees {
            blocks.extend(patient.blocks(tree));
            for item in patient.items(tree) {
                // All subvolumes are one class.
                let class = if (256..1 << 48).contains(&tree) { 256 } else { tree };
                items.entry((class, item.key.item_type)).or_default().push(item);
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        let is_leaf = |block: &u64| Node::parse(&patient.block(*block)).expect("sound").is_leaf();
        let (leaves, inner) = blocks.into_iter().partition(is_leaf);
        Self { items: items.into_values().collect(), leaves, inner }
    }

    fn choose(&self, random: &mut Random) -> Target<'_> {
        let block = |blocks: &[u64], random: &mut Random| blocks[random.below(blocks.len())];
        match random.below(12) {
            0 => Target::Header(block(&self.leaves, random)),
            1 => Target::Header(block(&self.inner, random)),
            2 => Target::Pointer(block(&self.inner, random)),
            choice => {
                let kind = &self.items[random.below(self.items.len())];
                let item = &kind[random.below(kind.len())];
                if choice < 5 || item.data.is_empty() {
                    Target::Key(item)
                } else {
                    Target::Data(item)
                }
            }
        }
    }
}

/// Changes some neighbouring bytes as a number, and describes the change.
fn change(bytes: &mut [u8], random: &mut Random) -> String {
    let width = [1, 1, 2, 4, 8][random.below(5)].min(bytes.len());
    let at = random.below(bytes.len() / width) * width;
    let field = &mut bytes[at..at + width];
    let mut number = [0; 8];
    number[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(number);
    let new = match random.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.below(8 * width),
        _ => old.wrapping_add(4096),
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
    format!("byte {at}, {width} wide: {old:#x} to {new:#x}")
}

fn mutate(patient: &Patient, target: &Target<'_>, random: &mut Random) -> String {
    let mut what = String::new();
    let mut at = |block: u64, start: usize, len: usize| {
        patient.edit_block(block, |bytes| what = change(&mut bytes[start..start + len], random));
    };
    match target {
        Target::Data(found) => {
            patient.edit(found, |data| what = change(data, random));
            format!("{} in leaf {}: {what}", found.key, found.leaf)
        }
        Target::Key(found) => {
            at(found.leaf, HEADER_SIZE + found.slot * ITEM_HEADER_SIZE, ITEM_HEADER_SIZE);
            format!("header of {} in leaf {}: {what}", found.key, found.leaf)
        }
        Target::Header(block) => {
            at(*block, 32, HEADER_SIZE - 32);
            format!("header of the block at {block} from byte 32: {what}")
        }
        Target::Pointer(block) => {
            let pointers = Node::parse(&patient.block(*block)).expect("sound").nritems();
            let slot = random_slot(*block, pointers);
            at(*block, HEADER_SIZE + slot * KEY_POINTER_SIZE, KEY_POINTER_SIZE);
            format!("pointer {slot} of the block at {block}: {what}")
        }
    }
}

fn random_slot(block: u64, pointers: usize) -> usize {
    Random(block).below(pointers)
}

fn compare(spec: &ImageSpec, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::build(spec, &Content::new(seed));
    let sound = Patient::load(image.devices());
    let targets = Targets::of(&sound);
    let mut missed = Vec::new();
    let mut counts = BTreeMap::<(bool, bool), u64>::new();
    for round in 0..ROUNDS * effort() {
        let mut random = Random(seed << 32 | round);
        let patient = sound.copy();
        let target = targets.choose(&mut random);
        let what = mutate(&patient, &target, &mut random);
        let found = patient.check().map_or_else(|_| true, |report| !report.is_clean());
        let folder = Scratch::new();
        let progs = oracle::check(&patient.save(folder.path()), true);
        *counts.entry((found, progs.is_err())).or_default() += 1;
        if let (Err(said), false) = (progs, found) {
            missed.push(format!("{what}\n{}", said.stderr));
        }
    }
    println!("{}: found here and by btrfs check, how often: {counts:?}", spec.name());
    assert!(missed.is_empty(), "{}:\n{}", spec.name(), missed.join("\n"));
}

#[test]
fn mutants_of_a_plain_image() {
    compare(&ImageSpec::new("mutants"), 11);
}

#[test]
fn mutants_with_small_nodes_holes_and_quotas() {
    let spec = ImageSpec::new("mutants-small").node_size(4096).without(Feature::NoHoles);
    compare(&spec.quota(Quota::Full), 12);
}

#[test]
fn mutants_after_a_power_cut() {
    compare(&ImageSpec::new("mutants-cut").power_cut(), 13);
}
