//! Chunks, roots and branches of trees that are lost are put together again and written: both
//! checkers and the kernel call the result sound, and the kernel reads the same files.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use larder_device::{Device, MemoryDevice};
use larder_format::Header;
use larder_format::node::HEADER_SIZE;
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CHUNK_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, FS_TREE, ROOT_TREE,
    UUID_TREE,
};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_rescue::repair::{Verdict, Wishes};
use larder_rescue::undo;
use larder_testkit::guard::KernelMount;
use larder_testkit::manifest::assert_same;
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Profile, Scratch, oracle};
use zerocopy::FromBytes;

use crate::patient::Patient;
use crate::support::{differ, prepare, refs, superblock};

const MIB: u64 = 1 << 20;
const NODE_BYTES: u32 = 4096;

/// Overwrites every tree block, of any age, that `is_lost`. Returns how many.
pub(crate) fn lose(patient: &Patient, is_lost: impl Fn(&Header) -> bool) -> usize {
    let fsid = superblock(patient).metadata_uuid().into_bytes();
    let mut lost = 0;
    for device in patient.devices() {
        let mut bytes = vec![0; HEADER_SIZE];
        for at in (MIB..device.len_bytes() - 4096).step_by(4096) {
            device.read_at(&mut bytes, at).expect("reads");
            let header = Header::read_from_bytes(&bytes).expect("has its size");
            // Superblocks have their magic where blocks have a uuid.
            if header.fsid == fsid && &bytes[64..72] != b"_BHRfS_M" && is_lost(&header) {
                device.write_at(&[0; NODE_BYTES as usize], at).expect("writes");
                lost += 1;
            }
        }
    }
    lost
}

fn lose_tree(patient: &Patient, trees: &[u64]) {
    assert!(lose(patient, |it| trees.contains(&it.owner.get())) > 1);
}

fn lose_superblocks(patient: &Patient, devices: Range<usize>) {
    for device in devices {
        for offset in &OFFSETS[..2] {
            patient.write(device, offset.0, &[0; SUPERBLOCK_SIZE]);
        }
    }
}

/// What is lost, in words and in deed.
type Loss = (&'static str, fn(&Patient));

/// The first ones depend on profiles.
const LOSSES: &[Loss] = &[
    ("all superblocks", |patient| lose_superblocks(patient, 0..patient.devices().count())),
    ("the superblocks of the last device", |patient| {
        let count = patient.devices().count();
        lose_superblocks(patient, count - 1..count);
    }),
    ("the chunk tree and the device tree", |patient| lose_tree(patient, &[CHUNK_TREE, DEV_TREE])),
    ("the root tree and the chunk tree", |patient| lose_tree(patient, &[ROOT_TREE, CHUNK_TREE])),
    ("the first 8 MiB", |patient| patient.write(0, 0, &vec![0xA5; 8 << 20])),
    ("the chunk tree", |patient| lose_tree(patient, &[CHUNK_TREE])),
    ("the array of system chunks", |patient| {
        patient.edit_superblocks(|superblock| {
            superblock.sys_chunk_array.fill(0);
            superblock.sys_chunk_array_size = 0.into();
        });
    }),
    ("every root of the root tree", |patient| {
        assert!(lose(patient, |it| it.owner.get() == ROOT_TREE && it.level > 0) > 1);
    }),
    ("the root tree", |patient| lose_tree(patient, &[ROOT_TREE])),
    ("trees that follow from others", |patient| {
        lose_tree(patient, &[EXTENT_TREE, FREE_SPACE_TREE, BLOCK_GROUP_TREE, UUID_TREE]);
    }),
];

/// Repairs a patient; the kernel reads what it read before the loss.
fn heal(patient: &Patient, sound: &Manifest) -> Result<(), String> {
    let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
    let wishes = Wishes { check_data_csum: true, ..Wishes::default() };
    let prepared = prepare(patient, &wishes).map_err(|error| error.to_string())?;
    if let Verdict::Refused(reasons) = &prepared.verdict {
        let notes = prepared.notes.join("\n");
        return Err(format!("{}\n{notes}\n{}", reasons.join("; "), prepared.after));
    }
    let folder = Scratch::new();
    let names: Vec<PathBuf> = before.iter().map(|_| "device".into()).collect();
    let undo_file = folder.path().join("undo");
    prepared.apply(&names, &undo_file).expect("applies");
    let report = patient.check().map_err(|why| format!("after it: {why}"))?;
    if !report.is_clean() {
        return Err(report.to_string());
    }
    let saved = patient.save(folder.path());
    oracle::check(&saved, true).map_err(|said| said.to_string())?;
    let mount = KernelMount::open(&saved, "noatime");
    assert_same(sound, &Manifest::of_tree(mount.path()));
    drop(mount);
    undo::undo(&undo_file, &refs(patient)).expect("undoes");
    assert!(!differ(patient, &before), "undoing it gives back what was there");
    Ok(())
}

fn losses_are_healed(losses: &[Loss], data: Profile, metadata: Profile, devices: usize) {
    let spec = ImageSpec::new(data.name()).node_size(NODE_BYTES);
    let spec = spec.devices(&vec![256 * MIB; devices]).profiles(data, metadata);
    let image = KernelImage::build(&spec, &Content::new(3));
    let sound = image.manifest();
    let whole = Patient::load(image.devices());
    let mut left = Vec::new();
    for (what, plant) in losses {
        let patient = whole.copy();
        plant(&patient);
        left.extend(heal(&patient, sound).err().map(|why| format!("{what}: {why}")));
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
}

#[test]
fn losses_on_one_device_are_healed() {
    losses_are_healed(LOSSES, Profile::Single, Profile::Dup, 1);
}

#[test]
fn losses_on_stripes_and_mirrors_are_healed() {
    losses_are_healed(&LOSSES[..4], Profile::Raid10, Profile::Raid10, 4);
}

#[test]
fn losses_on_parity_are_healed() {
    losses_are_healed(&LOSSES[..4], Profile::Raid5, Profile::Raid1, 3);
}

#[test]
fn nodes_of_a_tree_of_files_are_lost() {
    let image = KernelImage::empty(&ImageSpec::new("nodes").node_size(NODE_BYTES));
    let mount = image.mount("");
    for number in 0..800_u32 {
        let folder = mount.path().join(format!("folder-{}", number % 7));
        fs::create_dir_all(&folder).expect("creates");
        let content = vec![number as u8; 3000];
        fs::write(folder.join(format!("file-{number}")), content).expect("writes");
    }
    drop(mount);
    let sound = image.manifest();
    let patient = Patient::load(image.devices());
    assert!(lose(&patient, |it| it.owner.get() == FS_TREE && it.level > 0) > 1);
    heal(&patient, sound).unwrap_or_else(|why| panic!("{why}"));
}
