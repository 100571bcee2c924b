//! File systems that are filled by operations whose work comes later: references to extents. Each
//! kind of operation alone, and all of them mixed. A caller gets ENOSPC and nothing worse; commits
//! always succeed, deleting always works, and the result is sound.
//!
//! `LARDER_EFFORT` multiplies the number of operations.

use larder::{
    AllocateMode, Error, ErrorKind, File, Filesystem, SnapshotKind, Subvolume, XattrMode,
};
use larder_testkit::{ImageSpec, KernelImage, Profile};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{check, open};

const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Sectors of the file that others share with.
const SOURCE_SECTORS: u64 = 256;
/// Sectors of each file that shares.
const TARGET_SECTORS: u64 = 1024;
/// As many refusals one after the other mean that the file system is full.
const REFUSALS: u32 = 8;

/// The file system that is filled.
struct Stage {
    root: Subvolume,
    other: Subvolume,
    source: File,
    random: StdRng,
}

/// A kind of operation.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Does the operation for the `number`th time.
    act: fn(&mut Stage, number: u64) -> larder::Result<()>,
    /// How often, at most, alone.
    most: u64,
}

const KINDS: [Kind; 13] = [
    Kind { name: "reflinks", act: reflink, most: 80_000 },
    Kind { name: "reflinks between subvolumes", act: reflink_across, most: 80_000 },
    Kind { name: "reflinks over others", act: reflink_over, most: 3_000 },
    Kind { name: "deduplication", act: dedupe, most: 80_000 },
    Kind { name: "many extents in one call", act: clone_fragmented, most: 80_000 },
    Kind { name: "small writes", act: write_scattered, most: 80_000 },
    Kind { name: "preallocation", act: allocate_scattered, most: 80_000 },
    Kind { name: "punching", act: punch, most: 3_000 },
    Kind { name: "truncating", act: truncate, most: 3_000 },
    Kind { name: "attributes", act: set_attribute, most: 80_000 },
    Kind { name: "renames over files", act: rename_over, most: 3_000 },
    Kind { name: "inline to regular", act: grow_inline, most: 80_000 },
    Kind { name: "changes between snapshots", act: snapshot_and_change, most: 80_000 },
];

impl Stage {
    fn new(fs: &Filesystem, seed: u64) -> Self {
        let root = fs.subvolume("/").unwrap();
        let other = root.create_subvolume("other").unwrap();
        let source = root.create("source", 0o644).unwrap();
        for sector in 0..SOURCE_SECTORS {
            // Each is an extent of its own.
            source.write_at(&[sector as u8; SECTOR as usize], sector * SECTOR).unwrap();
            if sector % 16 == 15 {
                fs.sync().unwrap();
            }
        }
        Self { root, other, source, random: StdRng::seed_from_u64(seed) }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }
}

/// The file for the `number`th operation of those that change files of many sectors.
fn file(subvolume: &Subvolume, kind: &str, number: u64) -> larder::Result<File> {
    let name = format!("{kind}-{}", number / TARGET_SECTORS);
    match subvolume.open_file(&name) {
        Err(error) if error.kind() == ErrorKind::NotFound => subvolume.create(&name, 0o644),
        file => file,
    }
}

fn share(stage: &mut Stage, target: &File, sector: u64) -> larder::Result<()> {
    let from = stage.below(SOURCE_SECTORS);
    target.clone_range(&stage.source, from * SECTOR, SECTOR, sector * SECTOR)
}

fn reflink(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "reflink", number)?;
    // Every other sector, so that no two are one extent.
    share(stage, &target, 2 * (number % TARGET_SECTORS))
}

fn reflink_across(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.other, "reflink", number)?;
    share(stage, &target, 2 * (number % TARGET_SECTORS))
}

fn reflink_over(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "over", number)?;
    let sector = stage.below(TARGET_SECTORS);
    share(stage, &target, sector)
}

fn dedupe(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "dedupe", number)?;
    let (from, to) = (stage.below(SOURCE_SECTORS), 2 * (number % TARGET_SECTORS));
    target.write_at(&[from as u8; SECTOR as usize], to * SECTOR)?;
    let shared = target.dedupe_range(&stage.source, from * SECTOR, SECTOR, to * SECTOR)?;
    assert_eq!(shared, Some(SECTOR));
    Ok(())
}

fn clone_fragmented(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = stage.root.create(format!("whole-{number}"), 0o644)?;
    target.clone_range(&stage.source, 0, 0, 0)
}

fn write_scattered(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "written", number)?;
    let sector = 2 * stage.below(TARGET_SECTORS);
    target.write_at(&[1; 5000], sector * SECTOR)?;
    if number.is_multiple_of(64) { stage.root.filesystem().sync() } else { Ok(()) }
}

fn allocate_scattered(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.other, "allocated", number)?;
    target.allocate(2 * (number % TARGET_SECTORS) * SECTOR, SECTOR, AllocateMode::Grow)
}

fn punch(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "punched", number)?;
    target.clone_range(&stage.source, 0, 0, 0)?;
    let (from, sectors) = (stage.below(SOURCE_SECTORS), stage.below(40));
    target.punch_hole(from * SECTOR, (sectors + 1) * SECTOR)
}

fn truncate(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.root, "truncated", number)?;
    target.clone_range(&stage.source, 0, 0, 0)?;
    let len_bytes = stage.below(SOURCE_SECTORS * SECTOR);
    target.set_len(len_bytes)
}

fn set_attribute(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let target = file(&stage.other, "attributes", number)?;
    target.set_xattr(format!("user.{}", number % TARGET_SECTORS), &[9; 100], XattrMode::Any)
}

fn rename_over(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let new = stage.root.create("new", 0o644).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => stage.root.open_file("new"),
        _ => Err(error),
    })?;
    new.clone_range(&stage.source, 0, 32 * SECTOR, 0)?;
    stage.root.rename("new", format!("renamed-{}", number % 64))
}

fn grow_inline(stage: &mut Stage, number: u64) -> larder::Result<()> {
    let file = stage.root.create(format!("inline-{number}"), 0o644)?;
    file.write_at(b"short", 0)?;
    if number % 32 == 31 {
        stage.root.filesystem().sync()?;
    }
    file.write_at(&[1; 3000], SECTOR)
}

/// The first change of a leaf after a snapshot adds a reference to everything in it.
fn snapshot_and_change(stage: &mut Stage, number: u64) -> larder::Result<()> {
    if number.is_multiple_of(64) {
        let name = format!("snapshot-{number}");
        stage.root.snapshot(name, SnapshotKind::Writable)?;
    }
    let (which, sector) = (stage.below(1 + number / 4), 2 * stage.below(TARGET_SECTORS));
    let target = file(&stage.root, "reflink", which)?;
    share(stage, &target, sector)
}

/// Does the operations until there is no space for them, or `most` are done.
fn fill(fs: &Filesystem, stage: &mut Stage, kinds: &[Kind], most: u64) -> u64 {
    let mut numbers = vec![0; kinds.len()];
    let (mut done, mut refusals) = (0, 0);
    while done < most && refusals < REFUSALS * kinds.len() as u32 {
        let kind = stage.below(kinds.len() as u64) as usize;
        match (kinds[kind].act)(stage, numbers[kind]) {
            Ok(()) => (done, refusals) = (done + 1, 0),
            Err(error) => {
                assert_full(fs, &error, kinds[kind].name);
                refusals += 1;
            }
        }
        numbers[kind] += 1;
    }
    done
}

#[track_caller]
fn assert_full(fs: &Filesystem, error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
    let read_only = fs.health().made_read_only;
    assert!(read_only.is_none(), "{what}: {read_only:?}");
}

/// Removes everything except the source.
fn remove_all(fs: &Filesystem, stage: &Stage, what: &str) {
    let failed = |error: Error| panic!("{what}: removing from a full file system: {error}");
    for subvolume in [&stage.root, &stage.other] {
        let entries = subvolume.open_directory("/").unwrap().entries().unwrap();
        for entry in entries.map(Result::unwrap).collect::<Vec<_>>() {
            let name = entry.name().to_str().unwrap().to_owned();
            if name.starts_with("snapshot-") {
                subvolume.delete_subvolume(&name).unwrap_or_else(failed);
            } else if name != "source" && name != "other" {
                subvolume.remove_file(&name).unwrap_or_else(failed);
            }
        }
    }
    fs.sync().unwrap_or_else(failed);
}

/// Fills a file system with data up to the last byte, and makes room for `room_bytes` again.
fn fill_with_data(stage: &Stage, room_bytes: u64) {
    let filler = stage.root.create("filler", 0o644).unwrap();
    let mut len_bytes = 0;
    while filler.write_at(&vec![3; MIB as usize], len_bytes).is_ok() {
        len_bytes += MIB;
    }
    filler.set_len(len_bytes - room_bytes).unwrap();
    stage.root.filesystem().sync().unwrap();
}

/// Fills a file system of its own with data and then with these operations, empties it, and fills
/// it again.
fn fill_and_empty(spec: &ImageSpec, kinds: &[Kind], most: u64) {
    let name = if kinds.len() == 1 { kinds[0].name } else { "all of them" };
    let (what, most) = (format!("{}: {name}", spec.name()), most * larder_testkit::effort());
    let image = KernelImage::empty(spec);
    let fs = open(&image);
    let mut stage = Stage::new(&fs, larder_testkit::seed(71));
    // What is kept for trees is a share of all that is used.
    fill_with_data(&stage, if spec.name().contains("mixed") { 12 * MIB } else { 4 * MIB });
    let done = fill(&fs, &mut stage, kinds, most);
    fs.sync().unwrap_or_else(|error| panic!("{what}: after {done}: {error}"));
    println!("{what}: {done} operations");
    check(&image, &format!("{what}: {done} operations"));
    remove_all(&fs, &stage, &what);
    let again = done.min(most / 8);
    let done = fill(&fs, &mut stage, kinds, again);
    assert!(done * 2 >= again, "{what}: {done} operations after others, which were removed");
    fs.sync().unwrap_or_else(|error| panic!("{what}: again {done}: {error}"));
    drop((stage, fs));
    check(&image, &format!("{what}: {done} again"));
}

fn small_nodes() -> ImageSpec {
    let spec = ImageSpec::new("references-4k").node_size(4096).devices(&[64 << 20]);
    spec.profiles(Profile::Single, Profile::Single)
}

fn mixed_groups() -> ImageSpec {
    ImageSpec::new("references-mixed").mixed().node_size(4096).devices(&[64 << 20])
}

#[test]
fn each_kind_alone() {
    for kind in KINDS {
        fill_and_empty(&small_nodes(), &[kind], kind.most);
    }
}

#[test]
fn all_kinds_on_small_nodes() {
    fill_and_empty(&small_nodes(), &KINDS, 10_000);
}

#[test]
fn all_kinds_in_mixed_groups() {
    fill_and_empty(&mixed_groups(), &KINDS, 10_000);
}

#[test]
fn all_kinds_on_two_copies() {
    let spec = ImageSpec::new("references-dup").devices(&[128 << 20]);
    fill_and_empty(&spec, &KINDS, 10_000);
}

#[test]
fn all_kinds_on_large_nodes_and_two_devices() {
    let spec = ImageSpec::new("references-64k").node_size(65536).devices(&[256 << 20; 2]);
    fill_and_empty(&spec.profiles(Profile::Raid1, Profile::Raid1), &KINDS, 10_000);
}

/// Data takes the rest of the space while the references wait.
#[test]
fn data_after_references() {
    let image = KernelImage::empty(&mixed_groups());
    let fs = open(&image);
    let mut stage = Stage::new(&fs, larder_testkit::seed(72));
    let done = fill(&fs, &mut stage, &KINDS[..1], 40_000);
    fill_with_data(&stage, 4 * MIB);
    println!("{done} operations");
    fs.sync().unwrap();
    drop((stage, fs));
    check(&image, "data after references");
}
