//! The extents of a file, as the kernel reports them: dirty data, shared data.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use larder::{AllocateMode, ExtentKind, File, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage, Scale};

use super::open;

const SECTOR: u64 = 4096;

/// A range of a file in sectors, and which of some flags it has.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    sectors: Range<u64>,
    flags: Vec<&'static str>,
}

/// What `filefrag` says of a file on a mount, as far as these flags go.
fn by_kernel(path: &Path, flags: &[&'static str]) -> Vec<Mapped> {
    let output = Command::new("filefrag").args(["-v", "-b4096"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut mapped = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let [number, sectors, ..] = fields[..] else { continue };
        let Some((first, last)) = sectors.split_once("..") else { continue };
        if number.parse::<u64>().is_err() {
            continue;
        }
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        let said = fields.last().unwrap();
        // Inline data is reported in bytes.
        let end = if said.contains("inline") { 1 } else { number(last) + 1 };
        mapped.push(Mapped {
            sectors: number(first)..end,
            flags: flags.iter().filter(|flag| said.contains(**flag)).copied().collect(),
        });
    }
    mapped
}

/// The same for a file that is open here.
fn by_larder(file: &File, flags: &[&'static str]) -> Vec<Mapped> {
    let mut mapped = Vec::new();
    for extent in file.extents_from(0).unwrap().map(Result::unwrap) {
        let flag = match extent.kind {
            ExtentKind::Hole => continue,
            ExtentKind::Delayed => "delalloc",
            ExtentKind::Preallocated => "unwritten",
            ExtentKind::Inline => "inline",
            ExtentKind::Data => "",
        };
        let mut has = vec![flag];
        if flags.contains(&"shared") && file.is_shared(extent.offset).unwrap() {
            has.push("shared");
        }
        let end = (extent.offset + extent.len_bytes).div_ceil(SECTOR);
        mapped.push(Mapped {
            sectors: extent.offset / SECTOR..end,
            flags: flags.iter().filter(|flag| has.contains(flag)).copied().collect(),
        });
    }
    mapped
}

/// A change of a file, on either side.
enum Change {
    Write(u64, u64),
    Allocate(u64, u64),
    Sync,
}

use Change::{Allocate, Sync, Write};

/// Changes that leave some data in memory: over data, holes and preallocated space, in a short
/// file, after the end.
const FILES: [&[Change]; 5] = [
    &[Write(0, 32 * SECTOR), Sync, Write(4 * SECTOR, 100), Write(40 * SECTOR, 2 * SECTOR)],
    &[Allocate(0, 16 * SECTOR), Sync, Write(4 * SECTOR, 2 * SECTOR), Write(20 * SECTOR, 1)],
    &[Write(0, 3)],
    &[Write(0, 3), Sync, Write(3, 5)],
    &[Write(3 * SECTOR, SECTOR), Write(0, SECTOR), Write(8 * SECTOR, 5)],
];

/// Dirty data is told apart, and seeking finds it, and nothing is written back for that.
#[test]
fn pending_deletions_are_shown_as_the_kernel_shows_them() {
    use std::os::unix::fs::FileExt;

    let content = Content::new(96).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("mapping"), &content);
    let flags = ["delalloc", "unwritten"];
    let mut expected = Vec::new();
    let mount = image.mount("noatime,commit=300");
    for (number, changes) in FILES.iter().enumerate() {
        let path = mount.path().join(format!("theirs-{number}"));
        let file = std::fs::File::create(&path).unwrap();
        for change in *changes {
            match change {
                Write(at, len) => file.write_all_at(&vec![1; *len as usize], *at).unwrap(),
                Allocate(at, len) => {
                    let mode = rustix::fs::FallocateFlags::empty();
                    rustix::fs::fallocate(&file, mode, *at, *len).unwrap();
                }
                Sync => file.sync_all().unwrap(),
            }
        }
        let len_bytes = file.metadata().unwrap().len();
        let positions: Vec<(Option<u64>, Option<u64>)> = (0..len_bytes)
            .step_by(1000)
            .map(|at| {
                let seek = |from| rustix::fs::seek(&file, from).ok();
                (seek(rustix::fs::SeekFrom::Data(at)), seek(rustix::fs::SeekFrom::Hole(at)))
            })
            .collect();
        expected.push((by_kernel(&path, &flags), positions));
    }
    drop(mount);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for (number, (changes, (mapped, positions))) in FILES.iter().zip(&expected).enumerate() {
        let file = root.create(format!("ours-{number}"), 0o644).unwrap();
        for change in *changes {
            match change {
                Write(at, len) => file.write_at(&vec![1; *len as usize], *at).unwrap(),
                Allocate(at, len) => file.allocate(*at, *len, AllocateMode::Grow).unwrap(),
                Sync => file.sync().unwrap(),
            }
        }
        assert_eq!(by_larder(&file, &flags), *mapped, "file {number}");
        let seen: Vec<_> = (0..file.len_bytes())
            .step_by(1000)
            .map(|at| (file.seek_data(at).ok(), file.seek_hole(at).ok()))
            .collect();
        assert_eq!(seen, *positions, "file {number}");
        assert_eq!(by_larder(&file, &flags), *mapped, "file {number}, nothing was written back");
    }
}

/// Clones, also of a part of the same file, snapshots, and what is left when they are gone.
#[test]
fn shared_space_is_as_the_kernel_reports_it() {
    let content = Content::new(97).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("shared-extents"), &content);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let volume = root.create_subvolume("volume").unwrap();
    let names = ["alone", "split", "itself", "original", "clone", "preallocated"];
    let files: Vec<File> = names.iter().map(|name| volume.create(name, 0o644).unwrap()).collect();
    for file in &files[..4] {
        file.write_at(&vec![5; 16 * SECTOR as usize], 0).unwrap();
        file.sync().unwrap();
    }
    files[1].write_at(&vec![6; SECTOR as usize], 5 * SECTOR).unwrap();
    files[2].clone_range(&files[2], 0, 4 * SECTOR, 32 * SECTOR).unwrap();
    files[4].clone_range(&files[3], 4 * SECTOR, 4 * SECTOR, 0).unwrap();
    files[5].allocate(0, 8 * SECTOR, AllocateMode::Grow).unwrap();
    let compare = |fs: larder::Filesystem, folders: &[&str], what: &str| {
        let root = fs.subvolume("/").unwrap();
        let flags = ["shared"];
        let mut ours = Vec::new();
        for folder in folders {
            let files = names.map(|name| root.open_file(format!("{folder}/{name}")).unwrap());
            ours.push(files.map(|file| by_larder(&file, &flags)));
        }
        drop((root, fs));
        let mount = image.mount("ro,noatime");
        for (folder, ours) in folders.iter().zip(&ours) {
            for (name, ours) in names.iter().zip(ours) {
                let theirs = by_kernel(&mount.path().join(folder).join(name), &flags);
                assert_eq!(*ours, theirs, "{what}: {folder}/{name}");
            }
        }
        let count = ours.iter().flatten().flatten().filter(|mapped| !mapped.flags.is_empty());
        count.count()
    };
    drop((root, volume, files));
    fs.sync().unwrap();
    assert_eq!(compare(fs, &["volume"], "clones"), 4);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    fs.subvolume("/volume")
        .unwrap()
        .snapshot_to(&root, "snapshot", SnapshotKind::Writable)
        .unwrap();
    drop(root);
    assert!(compare(fs, &["volume", "snapshot"], "a snapshot") > 15);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let alone = root.open_file("snapshot/alone").unwrap();
    alone.write_at(&[7; SECTOR as usize], 3 * SECTOR).unwrap();
    drop(alone);
    fs.sync().unwrap();
    drop(root);
    compare(fs, &["volume", "snapshot"], "a change in it");
    let fs = open(&image);
    fs.subvolume("/").unwrap().delete_subvolume("volume").unwrap();
    fs.sync().unwrap();
    compare(fs, &["snapshot"], "what is left of it");
}
