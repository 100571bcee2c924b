//! `larder check --repair`, `larder rescue` for parts of it, and `larder rescue undo`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_device::Access;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_image::Place;
use larder_testkit::{Content, ImageSpec, KernelImage, Scratch, oracle};
use larder_volume::{OpenOptions, Volume};
use serde_json::Value;

use crate::support::{fail, larder, succeed};

struct Damaged {
    image: KernelImage,
    folder: Scratch,
}

impl Damaged {
    /// An image of which the superblock's copy at 64 MiB is overwritten.
    fn new(name: &str) -> Self {
        let image = KernelImage::build(&ImageSpec::new(name), &Content::new(3));
        let damaged = Self { image, folder: Scratch::new() };
        damaged.wound();
        damaged
    }

    fn path(&self) -> &Path {
        &self.image.devices()[0]
    }

    fn shown(&self) -> String {
        self.path().display().to_string()
    }

    fn undo(&self) -> PathBuf {
        self.folder.path().join("repair.undo")
    }

    fn wound(&self) {
        let file = File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(&[7; SUPERBLOCK_SIZE], OFFSETS[1].0).unwrap();
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }
}

fn code(line: &str) -> Option<i32> {
    larder(line.split(' ')).status.code()
}

fn json(line: &str) -> Value {
    serde_json::from_slice(&larder(line.split(' ')).stdout).unwrap()
}

#[test]
fn a_repair_is_planned_written_and_undone() {
    let damaged = Damaged::new("repair");
    let (shown, undo) = (damaged.shown(), damaged.undo());
    let (undo_shown, before) = (undo.display().to_string(), damaged.content());
    assert_eq!(code(&format!("check {shown}")), Some(1));

    let plan = succeed(&format!("check --repair --plan {shown}"));
    let wanted = "superblock-bad: 1: write all superblocks anew from what the trees say\n";
    assert!(plan.starts_with(wanted), "{plan}");
    assert!(plan.contains("no finding would remain"), "{plan}");
    let plan = json(&format!("check --repair --plan --format json {shown}"));
    assert_eq!((&plan["verdict"], &plan["written"]), (&"proved".into(), &false.into()));
    assert_eq!(plan["steps"][0]["kind"], "superblock-bad");
    assert!(damaged.content() == before, "a plan changes nothing");

    let said = succeed(&format!("check --repair --undo {undo_shown} {shown}"));
    assert!(said.contains("repaired: no finding left"), "{said}");
    assert!(said.contains(&format!("'larder rescue undo {undo_shown}'")), "{said}");
    succeed(&format!("check {shown}"));
    oracle::check(damaged.image.devices(), true).unwrap();
    let mount = damaged.image.mount("");
    fs::write(mount.path().join("new"), "written since").unwrap();
    drop(mount);

    let said = fail(&format!("rescue undo {undo_shown}"));
    assert!(said.contains("was written to after the repair"), "the kernel made a commit: {said}");
}

#[test]
fn undoing_gives_back_every_byte() {
    let damaged = Damaged::new("undo");
    let (shown, undo) = (damaged.shown(), damaged.undo().display().to_string());
    let before = damaged.content();
    succeed(&format!("check --repair --undo {undo} {shown}"));
    assert!(damaged.content() != before);
    let said = fail(&format!("check --repair --undo {undo} --init-extent-tree {shown}"));
    assert!(said.contains("larder rescue undo"), "the file is not overwritten: {said}");
    succeed(&format!("rescue undo {undo}"));
    assert!(damaged.content() == before);
    succeed(&format!("rescue undo {undo} {shown}"));
    assert!(damaged.content() == before);
}

#[test]
fn a_sound_image_stays_as_it_is() {
    let image = KernelImage::build(&ImageSpec::new("sound"), &Content::new(4));
    let shown = image.devices()[0].display().to_string();
    let before = fs::read(&image.devices()[0]).unwrap();
    let said = succeed(&format!("check --repair {shown}"));
    assert!(said.contains("there is nothing to repair"), "{said}");
    let said = json(&format!("--format json rescue super-recover -y {shown}"));
    assert_eq!((&said["verdict"], &said["overwritten-bytes"]), (&"sound".into(), &0.into()));
    assert!(fs::read(&image.devices()[0]).unwrap() == before);
}

#[test]
fn a_lost_chunk_tree_is_put_together() {
    let image = KernelImage::build(&ImageSpec::new("chunks"), &Content::new(5));
    let path = &image.devices()[0];
    let shown = path.display().to_string();
    let said = succeed(&format!("rescue chunk-recover {shown}"));
    assert!(said.contains("there is nothing to repair"), "{said}");
    // Both copies of its root.
    let dump = succeed(&format!("inspect dump-super {shown}"));
    let line = dump.lines().find(|line| line.starts_with("chunk_root\t")).unwrap();
    let chunk_root: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let device = larder_image::open(path, Access::ReadOnly, Place::Found).unwrap();
    let volume = Volume::open(vec![device], &OpenOptions::default()).unwrap();
    for range in volume.map(larder_format::Logical(chunk_root), 4096).unwrap() {
        for mirror in range.mirrors {
            file.write_all_at(&[7; 4096], mirror.physical.0).unwrap();
        }
    }
    let before = fs::read(path).unwrap();
    let said = fail(&format!("rescue zero-log {shown}"));
    assert!(said.contains("chunk tree"), "{said}");
    let undo = image.folder().join("chunks.undo").display().to_string();
    let said = json(&format!("--format json rescue chunk-recover -y --undo {undo} {shown}"));
    assert_eq!((&said["verdict"], &said["written"]), (&"proved".into(), &true.into()));
    succeed(&format!("check --check-data-csum {shown}"));
    oracle::check(image.devices(), true).unwrap();
    succeed(&format!("rescue undo {undo}"));
    assert!(fs::read(path).unwrap() == before);
    let said = succeed(&format!("check --repair {shown}"));
    assert!(said.contains("the chunk tree is put together from what is left"), "{said}");
    succeed(&format!("check --check-data-csum {shown}"));
}

#[test]
fn what_cannot_be_repaired_is_left_with_the_reason() {
    let image = KernelImage::build(&ImageSpec::new("left"), &Content::new(5));
    let path = &image.devices()[0];
    let shown = path.display().to_string();
    // Everything except superblocks.
    let mut content = fs::read(path).unwrap();
    let end = content.len();
    let second = OFFSETS[1].0 as usize;
    content[1 << 20..second].fill(7);
    content[second + SUPERBLOCK_SIZE..end].fill(7);
    fs::write(path, &content).unwrap();
    let output = larder(format!("check --repair {shown}").split(' '));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("refused: chunk tree"), "{said}");
    assert!(fs::read(path).unwrap() == content);
    assert!(!PathBuf::from(format!("{shown}.larder-undo")).exists());
}

#[test]
fn an_image_in_use_is_refused_with_the_place() {
    let damaged = Damaged::new("in-use");
    let shown = damaged.shown();
    let mount = damaged.image.mount("ro");
    let place = mount.path().display().to_string();
    for command in ["check --repair", "check --repair --plan", "rescue super-recover"] {
        let said = fail(&format!("{command} {shown}"));
        assert!(said.contains(&place), "{command}: {said}");
    }
}

#[test]
fn parts_are_repaired_alone() {
    let damaged = Damaged::new("parts");
    let shown = damaged.shown();
    let said = json(&format!("--format json rescue super-recover {shown}"));
    assert_eq!((&said["verdict"], &said["written"]), (&"proved".into(), &true.into()));
    for command in [
        "rescue clear-space-cache v2",
        "rescue clear-space-cache v1",
        "rescue clear-uuid-tree",
        "rescue fix-device-size",
        "rescue zero-log",
        "check --init-extent-tree",
        "check --init-csum-tree",
        "check --clear-space-cache v2",
    ] {
        let said = succeed(&format!("{command} {shown}"));
        assert!(said.contains("repaired"), "{command}: {said}");
        succeed(&format!("check --check-data-csum {shown}"));
        oracle::check(damaged.image.devices(), true).unwrap();
    }
    let mount = damaged.image.mount("");
    assert!(fs::read_dir(mount.path()).unwrap().count() > 0);
}

#[test]
fn data_that_matches_no_checksum_is_accepted_on_request() {
    let image = KernelImage::empty(&ImageSpec::new("data"));
    let mount = image.mount("");
    fs::write(mount.path().join("file"), vec![b'a'; 8192]).unwrap();
    drop(mount);
    let path = &image.devices()[0];
    let shown = path.display().to_string();
    let content = fs::read(path).unwrap();
    let at = content.chunks(4096).position(|sector| sector.iter().all(|byte| *byte == b'a'));
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(b"b", at.unwrap() as u64 * 4096).unwrap();
    fail(&format!("cat {shown}:/file"));
    let said = larder(format!("check --repair --check-data-csum {shown}").split(' '));
    assert_eq!(said.status.code(), Some(1), "nothing is accepted unless that is asked for");
    file.write_all_at(&[7; SUPERBLOCK_SIZE], OFFSETS[1].0).unwrap();
    let partly = format!("check --repair --partly --check-data-csum {shown}");
    let said = larder(partly.split(' '));
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains("repaired: 1 finding left"), "{text}");
    assert_eq!(said.status.code(), Some(1), "it is not sound yet");
    succeed(&format!("check {shown}"));
    let plan = succeed(&format!("rescue fix-data-checksum --readonly {shown}"));
    assert!(plan.contains("in /file"), "{plan}");
    succeed(&format!("rescue fix-data-checksum {shown}"));
    assert!(succeed(&format!("cat {shown}:/file")).starts_with("baaa"));
    succeed(&format!("check --check-data-csum {shown}"));
    oracle::check(image.devices(), true).unwrap();
}

#[test]
fn a_log_is_dropped_on_request() {
    let image = KernelImage::build(&ImageSpec::new("log").power_cut(), &Content::new(6));
    let shown = image.devices()[0].display().to_string();
    let log_root = || {
        let dump = succeed(&format!("inspect dump-super {shown}"));
        let line = dump.lines().find(|line| line.starts_with("log_root\t")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_ne!(log_root(), "0");
    succeed(&format!("rescue zero-log {shown}"));
    assert_eq!(log_root(), "0");
    succeed(&format!("check {shown}"));
    oracle::check(image.devices(), true).unwrap();
}
