//! Preallocated space: data is written there, here and in the kernel, unless it is shared.

use std::fs::File;
use std::os::unix::fs::FileExt;

use larder::{AllocateMode, ErrorKind, Extent, ExtentKind, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage};
use rustix::fs::{FallocateFlags, fallocate};

use super::{check, open};

const MIB: u64 = 1 << 20;

fn extents(file: &larder::File) -> Vec<Extent> {
    file.extents_from(0).unwrap().map(Result::unwrap).collect()
}

/// The extents of a file on disk: offset, length, address, and whether there is data.
fn places(file: &larder::File) -> Vec<(u64, u64, u64, bool)> {
    let place = |extent: Extent| {
        let is_data = extent.kind == ExtentKind::Data;
        extent.logical.map(|logical| (extent.offset, extent.len_bytes, logical, is_data))
    };
    extents(file).into_iter().filter_map(place).collect()
}

#[test]
fn writes_go_to_preallocated_space() {
    let image = KernelImage::build(&ImageSpec::new("room"), &Content::new(41));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("room", 0o644).unwrap();
    file.write_at(b"short", 0).unwrap();
    file.allocate(0, 2 * MIB, AllocateMode::KeepSize).unwrap();
    assert_eq!(file.len_bytes(), 5);
    let before = places(&file);
    assert_eq!(before.len(), 2, "{before:?}");
    let (start, _, logical, _) = before[1];
    assert_eq!(start, 4096);
    // In any order, extents that are adjacent on disk are one item in the end.
    for piece in [3, 1, 2, 0] {
        file.write_at(&vec![7; 102_400], 4096 + piece * 102_400).unwrap();
        fs.sync().unwrap();
    }
    let after = places(&file);
    assert_eq!(after[1].0, 4096, "{after:?}");
    assert_eq!(after[1].2, logical, "{after:?}");
    assert!(after[1].3 && after[1].1 >= 400_000, "{after:?}");
    assert_eq!(after.len(), 3, "{after:?}");
    assert_eq!(after[2].2, logical + after[1].1);
    // All of it goes with the cut, including space after the end.
    assert_eq!(file.metadata().allocated_bytes, 2 * MIB);
    file.set_len(file.len_bytes()).unwrap();
    assert!(file.metadata().allocated_bytes < MIB);
    file.allocate(3 * MIB + 5, 10_000, AllocateMode::Grow).unwrap();
    assert_eq!(file.len_bytes(), 3 * MIB + 10_005);
    fs.sync().unwrap();
    drop((file, root, fs));
    check(&image, "allocating");
}

#[test]
fn shared_room_is_left_alone() {
    let image = KernelImage::build(&ImageSpec::new("shared-room"), &Content::new(42));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("shared", 0o644).unwrap();
    file.allocate(0, MIB, AllocateMode::Grow).unwrap();
    let room = places(&file)[0].2;
    root.snapshot("snapshot", SnapshotKind::Writable).unwrap();
    file.write_at(&vec![1; 8192], 0).unwrap();
    let copy = fs.subvolume("snapshot").unwrap().open_file("shared").unwrap();
    copy.write_at(&vec![2; 8192], 0).unwrap();
    fs.sync().unwrap();
    let (ours, its) = (places(&file), places(&copy));
    assert!(ours[0].3 && its[0].3);
    assert!(ours[0].2 != room && its[0].2 != room, "{ours:?} {its:?}");
    drop((file, copy, root, fs));
    check(&image, "writing to shared room");
    let mount = image.mount("ro");
    for (path, byte) in [("shared", 1), ("snapshot/shared", 2)] {
        let data = std::fs::read(mount.path().join(path)).unwrap();
        assert!(data[..8192].iter().all(|seen| *seen == byte), "{path}");
        assert!(data[8192..].iter().all(|seen| *seen == 0), "{path}");
    }
}

/// Space that the kernel preallocated is written to here, and the other way round, several times.
#[test]
fn room_is_used_by_both_sides() {
    let image = KernelImage::build(&ImageSpec::new("both-room"), &Content::new(43));
    let mut expected = vec![0; 4 * MIB as usize];
    for round in 0..3_u64 {
        let mount = image.mount("");
        let path = mount.path().join("both");
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(path).unwrap();
        if round == 0 {
            fallocate(&file, FallocateFlags::empty(), 0, 2 * MIB).unwrap();
        }
        let at = 300_000 * round;
        file.write_all_at(&vec![round as u8 + 1; 50_000], at).unwrap();
        expected[at as usize..][..50_000].fill(round as u8 + 1);
        file.sync_all().unwrap();
        drop((file, mount));

        let fs = open(&image);
        let root = fs.subvolume("/").unwrap();
        let file = root.open_file("both").unwrap();
        if round == 0 {
            file.allocate(2 * MIB, 2 * MIB, AllocateMode::Grow).unwrap();
        }
        let room = places(&file);
        for at in [100_000 + 300_000 * round, 2 * MIB + 5000 + 200_000 * round] {
            file.write_at(&vec![round as u8 + 101; 60_000], at).unwrap();
            expected[at as usize..][..60_000].fill(round as u8 + 101);
        }
        fs.sync().unwrap();
        let address = |places: &[(u64, u64, u64, bool)], at: u64| {
            let found = places.iter().find(|(start, len, ..)| (*start..start + len).contains(&at));
            found.map(|(start, _, logical, _)| logical + (at - start)).unwrap()
        };
        let at = 2 * MIB + 8192 + 200_000 * round;
        assert_eq!(address(&places(&file), at), address(&room, at), "round {round}");
        let mut seen = vec![1; expected.len()];
        assert_eq!(file.read_at(&mut seen, 0).unwrap(), seen.len());
        assert!(seen == expected, "round {round}");
        drop((file, root, fs));
        check(&image, &format!("round {round}"));
        let mount = image.mount("ro");
        assert!(std::fs::read(mount.path().join("both")).unwrap() == expected, "round {round}");
    }
}

/// Preallocated space can be written when nothing else can.
#[test]
fn room_is_kept_when_all_else_is_full() {
    let spec = ImageSpec::new("full-room").devices(&[256 << 20]);
    let image = KernelImage::build(&spec, &Content::new(44));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("kept", 0o644).unwrap();
    let too_much = file.allocate(0, 10 << 30, AllocateMode::Grow).unwrap_err();
    assert_eq!(too_much.kind(), ErrorKind::NoSpace);
    assert_eq!((file.len_bytes(), file.metadata().allocated_bytes), (0, 0));
    file.allocate(0, 20 * MIB, AllocateMode::Grow).unwrap();
    let filler = root.create("filler", 0o644).unwrap();
    let piece = vec![3; MIB as usize];
    let full = (0..).find_map(|number| filler.write_at(&piece, number * MIB).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    fs.sync().unwrap();
    for number in 0..20 {
        file.write_at(&vec![number as u8; MIB as usize], number * MIB).unwrap();
    }
    fs.sync().unwrap();
    file.punch_hole(MIB, 5 * MIB).unwrap();
    filler.set_len(0).unwrap();
    fs.sync().unwrap();
    drop((file, filler, root, fs));
    check(&image, "a full file system");
    let mount = image.mount("ro");
    let data = std::fs::read(mount.path().join("kept")).unwrap();
    for (number, piece) in data.chunks(MIB as usize).enumerate() {
        let byte = if (1..6).contains(&number) { 0 } else { number as u8 };
        assert!(piece.iter().all(|seen| *seen == byte), "{number}");
    }
}

/// A file of many extents is cut, punched and allocated in steps.
#[test]
fn files_of_many_extents_take_several_transactions() {
    let image = KernelImage::build(&ImageSpec::new("steps").node_size(4096), &Content::new(45));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("many-extents", 0o644).unwrap();
    for number in 0..3000 {
        file.write_at(&[number as u8 | 1; 4096], number * 8192).unwrap();
    }
    fs.sync().unwrap();
    let all = 3000 * 8192;
    assert_eq!(places(&file).len(), 3000);
    file.allocate(0, all, AllocateMode::KeepSize).unwrap();
    assert_eq!(file.metadata().allocated_bytes, all);
    file.zero_range(100, 400 * 8192, AllocateMode::KeepSize).unwrap();
    file.punch_hole(1000 * 8192, 500 * 8192).unwrap();
    file.set_len(2000 * 8192 + 10).unwrap();
    assert_eq!(file.metadata().allocated_bytes, 1500 * 8192 + 4096);
    fs.sync().unwrap();
    drop((file, root, fs));
    check(&image, "steps");
    let mount = image.mount("ro");
    let data = std::fs::read(mount.path().join("many-extents")).unwrap();
    assert_eq!(data.len(), 2000 * 8192 + 10);
    for (number, piece) in data.chunks(8192).enumerate() {
        let is_kept = (400..1000).contains(&number) || number >= 1500;
        let byte = if is_kept { number as u8 | 1 } else { 0 };
        assert!(
            piece[..piece.len().min(4096)][100.min(piece.len() - 1)..]
                .iter()
                .all(|seen| *seen == byte),
            "{number}"
        );
    }
}
