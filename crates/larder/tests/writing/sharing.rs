//! Extents that files share: by reflink, by deduplication, and copies that share what they can.

use std::fs::File;
use std::os::unix::fs::FileExt;

use larder::{ErrorKind, Extent, ExtentKind, InodeFlags, SetAttributes, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage};
use rustix::fs::ioctl_ficlone;

use super::{check, open};

const SECTOR: u64 = 4096;

fn extents(file: &larder::File) -> Vec<Extent> {
    file.extents_from(0).unwrap().map(Result::unwrap).collect()
}

fn addresses(file: &larder::File) -> Vec<Option<u64>> {
    extents(file).iter().map(|extent| extent.logical).collect()
}

fn data(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(seed) >> 7) as u8 ^ at as u8).collect()
}

fn kind<T>(result: larder::Result<T>) -> ErrorKind {
    result.map(drop).expect_err("it is refused").kind()
}

#[test]
fn ranges_are_shared_by_the_rules_of_the_kernel() {
    let image = KernelImage::build(&ImageSpec::new("shared"), &Content::new(51));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let create = |path: &str, content: &[u8]| {
        let file = root.create(path, 0o644).unwrap();
        file.write_at(content, 0).unwrap();
        file
    };
    let content = data(100_000, 3);
    let original = create("original", &content);
    let copy = create("copy", b"");
    copy.clone_range(&original, 0, 0, 0).unwrap();
    assert_eq!(addresses(&copy), addresses(&original));
    assert_eq!(copy.len_bytes(), 100_000);

    let other = create("other", &data(200_000, 5));
    let refused = [
        (1, SECTOR, 0), // not at a sector
        (0, SECTOR, 1),
        (0, 100, 0),     // less than a sector in the middle
        (98_304, 0, 0),  // the end of one within the other
        (0, 200_000, 0), // beyond the end
        (102_400, SECTOR, 0),
        (102_400, 0, 0),
    ];
    for (from, len, to) in refused {
        let result = other.clone_range(&original, from, len, to);
        assert_eq!(kind(result), ErrorKind::InvalidInput, "{from} {len} {to}");
    }
    // A clone of nothing may have any offsets.
    other.clone_range(&original, 100_000, 0, 1).unwrap();
    assert_eq!(other.len_bytes(), 200_000);
    let overlapping = original.clone_range(&original, 0, 2 * SECTOR, SECTOR);
    assert_eq!(kind(overlapping), ErrorKind::InvalidInput);
    original.clone_range(&original, 0, 2 * SECTOR, 2 * SECTOR).unwrap();
    // The end of one at the end of the other, or after it.
    other.clone_range(&original, 98_304, 0, 50 * SECTOR).unwrap();
    assert_eq!(other.len_bytes(), 50 * SECTOR + 1696);

    // Files without checksums share only with other such files.
    let plain = create("plain", b"");
    let flags = Some(InodeFlags::NODATACOW);
    plain.set_attributes(&SetAttributes { flags, ..Default::default() }).unwrap();
    assert_eq!(kind(plain.clone_range(&original, 0, 0, 0)), ErrorKind::InvalidInput);
    assert_eq!(plain.copy_range(&original, 0, u64::MAX, 0).unwrap(), 100_000);

    // Inline data is copied.
    let short = create("short", b"crumbs");
    fs.sync().unwrap();
    assert_eq!(extents(&short)[0].kind, ExtentKind::Inline);
    let targets = [create("inline-0", b""), create("inline-1", b"more"), create("inline-2", b"")];
    targets[0].clone_range(&short, 0, 0, 0).unwrap();
    targets[1].clone_range(&short, 0, 0, SECTOR).unwrap();
    targets[2].clone_range(&original, 0, 5 * SECTOR, 0).unwrap();
    targets[2].clone_range(&short, 0, 0, 6 * SECTOR).unwrap();
    fs.sync().unwrap();
    assert_eq!(extents(&targets[0])[0].kind, ExtentKind::Inline);
    assert_eq!(extents(&targets[1])[0].kind, ExtentKind::Data);
    let files = [original, copy, other, plain, short].into_iter().chain(targets);
    let contents: Vec<(String, Vec<u8>)> = files
        .map(|file| {
            let mut data = vec![0; file.len_bytes() as usize];
            file.read_at(&mut data, 0).unwrap();
            (file.paths().unwrap()[0].display().to_string(), data)
        })
        .collect();
    drop((root, fs));
    check(&image, "sharing");
    let mount = image.mount("ro");
    for (path, data) in contents {
        assert!(std::fs::read(mount.path().join(&path)).unwrap() == data, "{path}");
    }
}

#[test]
fn equal_data_is_shared_once_and_other_data_is_left() {
    let image = KernelImage::build(&ImageSpec::new("equal"), &Content::new(52));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let content = data(3_000_000, 7);
    let files = ["one", "two", "three"].map(|path| {
        let file = root.create(path, 0o644).unwrap();
        file.write_at(&content, 0).unwrap();
        file
    });
    let [one, two, three] = &files;
    assert_eq!(one.dedupe_range(two, 0, 3_000_000, 0).unwrap(), Some(3_000_000));
    assert_eq!(addresses(one)[0], addresses(two)[0]);
    assert_eq!(three.dedupe_range(two, SECTOR, 5000, SECTOR).unwrap(), Some(SECTOR));
    three.write_at(b"x", 2_900_000).unwrap();
    assert_eq!(three.dedupe_range(two, 0, 3_000_000, 0).unwrap(), None);
    assert_eq!(kind(one.dedupe_range(two, 0, 3_000_001, 0)), ErrorKind::InvalidInput);
    // Once nothing refers to a shared extent, it is free again.
    fs.sync().unwrap();
    let used = fs.used_bytes();
    for path in ["one", "two", "three"] {
        root.remove_file(path).unwrap();
    }
    drop(files);
    fs.sync().unwrap();
    assert!(fs.used_bytes() < used - 3_000_000);
    drop((root, fs));
    check(&image, "dedupe");
}

/// Files are shared across subvolumes and snapshots, here and by the kernel, and each side changes
/// what the other shared.
#[test]
fn both_sides_change_shared_files() {
    let image = KernelImage::build(&ImageSpec::new("both").node_size(4096), &Content::new(53));
    let mut contents: Vec<Vec<u8>> = vec![data(900_000, 11)];
    for round in 0..3_usize {
        let fs = open(&image);
        let root = fs.subvolume("/").unwrap();
        if round == 0 {
            root.create_subvolume("elsewhere").unwrap();
            root.create("file-0", 0o644).unwrap().write_at(&contents[0], 0).unwrap();
        }
        let elsewhere = fs.subvolume("elsewhere").unwrap();
        let original = root.open_file("file-0").unwrap();
        let name = format!("file-{}", contents.len());
        let file = elsewhere.create(&name, 0o644).unwrap();
        file.clone_range(&original, 0, 0, 0).unwrap();
        root.snapshot(format!("snapshot-{round}"), SnapshotKind::ReadOnly).unwrap();
        file.write_at(&[round as u8; 10_000], 123_456).unwrap();
        original.write_at(&[round as u8; 5000], 200_000 * round as u64).unwrap();
        file.clone_range(&original, 0, 64 * SECTOR, 64 * SECTOR).unwrap();
        let mut copy = contents[0].clone();
        copy[123_456..][..10_000].fill(round as u8);
        contents[0][200_000 * round..][..5000].fill(round as u8);
        copy[64 * 4096..][..64 * 4096].copy_from_slice(&contents[0][..64 * 4096]);
        contents.push(copy);
        fs.sync().unwrap();
        drop((file, original, root, elsewhere, fs));
        check(&image, &format!("round {round}"));

        let mount = image.mount("");
        let path = mount.path().join("elsewhere").join(&name);
        assert!(std::fs::read(&path).unwrap() == contents[contents.len() - 1], "round {round}");
        let ours = File::options().read(true).write(true).open(path).unwrap();
        let kernels = mount.path().join(format!("elsewhere/file-{}", contents.len()));
        ioctl_ficlone(File::create(kernels).unwrap(), &ours).unwrap();
        contents.push(contents[contents.len() - 1].clone());
        ours.write_all_at(&vec![99; 20_000], 300_000).unwrap();
        let last = contents.len() - 2;
        contents[last][300_000..][..20_000].fill(99);
    }
    check(&image, "the last round");
    let mount = image.mount("ro");
    for (number, content) in contents.iter().enumerate() {
        let folder = if number == 0 { "." } else { "elsewhere" };
        let path = mount.path().join(folder).join(format!("file-{number}"));
        assert!(std::fs::read(&path).unwrap() == *content, "{number}");
    }
}
