//! Changes that remove capabilities from a program: the same as on the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

use larder::{AllocateMode, SetAttributes, XattrMode};
use larder_testkit::{Content, ImageSpec, KernelImage, Scale, clone_range, dedupe_range};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fgetxattr, fsetxattr};
use rustix::io::Errno;

use super::{check, open};

const CAPABILITY: &str = "security.capability";
const VALUE: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const SECTOR: u64 = 4096;

type Theirs = fn(&File, &File);
type Ours = fn(&larder::File, &larder::File);

/// The same change on both sides, given another file of the same content.
const CHANGES: [(&str, Theirs, Ours); 10] = [
    (
        "a write",
        |file, _| file.write_all_at(b"x", 5).unwrap(),
        |file, _| file.write_at(b"x", 5).unwrap(),
    ),
    (
        "a write of nothing",
        |file, _| file.write_all_at(b"", 5).unwrap(),
        |file, _| file.write_at(b"", 5).unwrap(),
    ),
    ("a truncation", |file, _| file.set_len(10).unwrap(), |file, _| file.set_len(10).unwrap()),
    (
        "a truncation to its length",
        |file, _| file.set_len(3 * SECTOR).unwrap(),
        |file, _| file.set_len(3 * SECTOR).unwrap(),
    ),
    (
        "an allocation",
        |file, _| fallocate(file, FallocateFlags::empty(), 0, 9 * SECTOR).unwrap(),
        |file, _| file.allocate(0, 9 * SECTOR, AllocateMode::Grow).unwrap(),
    ),
    (
        "a hole",
        |file, _| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, mode, 0, SECTOR).unwrap();
        },
        |file, _| file.punch_hole(0, SECTOR).unwrap(),
    ),
    (
        "zeros",
        |file, _| fallocate(file, FallocateFlags::ZERO_RANGE, 0, SECTOR).unwrap(),
        |file, _| file.zero_range(0, SECTOR, AllocateMode::Grow).unwrap(),
    ),
    (
        "a clone",
        |file, other| clone_range(file, 0, other, 0, SECTOR).unwrap(),
        |file, other| file.clone_range(other, 0, SECTOR, 0).unwrap(),
    ),
    (
        "a deduplication",
        |file, other| assert_eq!(dedupe_range(file, 0, other, 0, SECTOR).unwrap(), SECTOR),
        |file, other| assert!(file.dedupe_range(other, 0, SECTOR, 0).unwrap().is_some()),
    ),
    (
        "another mode",
        |file, _| {
            let mode = rustix::fs::Mode::from_raw_mode(0o700);
            rustix::fs::fchmod(file, mode).unwrap();
        },
        |file, _| {
            let new = SetAttributes { permissions: Some(0o700), ..Default::default() };
            file.set_attributes(&new).unwrap();
        },
    ),
];

#[test]
fn changing_a_program_removes_its_capabilities() {
    let content = Content::new(98).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("capabilities"), &content);
    let data = vec![7; 3 * SECTOR as usize];
    let mount = image.mount("noatime");
    let mut expected = Vec::new();
    for (number, (_, change, _)) in CHANGES.iter().enumerate() {
        let create = |name: String| {
            let path = mount.path().join(name);
            let options = File::options().read(true).write(true).create_new(true).open(path);
            let file = options.unwrap();
            file.write_all_at(&data, 0).unwrap();
            file
        };
        let [file, other] = ["theirs", "other"].map(|name| create(format!("{name}-{number}")));
        fsetxattr(&file, CAPABILITY, &VALUE, XattrFlags::empty()).unwrap();
        change(&file, &other);
        expected.push(fgetxattr(&file, CAPABILITY, &mut [0; 64][..]).is_ok());
    }
    drop(mount);
    assert_eq!(expected.iter().filter(|is_kept| **is_kept).count(), 3);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for (number, ((what, _, change), expected)) in CHANGES.iter().zip(&expected).enumerate() {
        let create = |name: &str| {
            let file = root.create(format!("{name}-{number}"), 0o755).unwrap();
            file.write_at(&data, 0).unwrap();
            file
        };
        let (file, other) = (create("ours"), create("another"));
        for _ in 0..2 {
            file.set_xattr(CAPABILITY, &VALUE, XattrMode::Any).unwrap();
            change(&file, &other);
            assert_eq!(file.xattr(CAPABILITY).is_ok(), *expected, "{what}");
        }
    }
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "capabilities");
}

/// Of each length and revision: only what the kernel stores.
#[test]
fn only_capabilities_are_stored_as_such() {
    let image = KernelImage::build(
        &ImageSpec::new("forms-of-capabilities"),
        &Content::new(99).scale(Scale::Small),
    );
    let of = |len, revision| [&[0, 0, 0, revision], &[0; 24][..]].concat()[..len].to_vec();
    let values: Vec<Vec<u8>> =
        (0..=28).flat_map(|len| (0..=4).map(move |revision| of(len, revision))).collect();
    let mount = image.mount("noatime");
    let file = File::create(mount.path().join("theirs")).unwrap();
    let theirs: Vec<_> = values
        .iter()
        .map(|value| fsetxattr(&file, CAPABILITY, value, XattrFlags::empty()).err())
        .collect();
    drop((file, mount));
    // One of each revision, and nothing, five times.
    assert_eq!(theirs.iter().filter(|error| error.is_none()).count(), 7);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("ours", 0o755).unwrap();
    let ours = values.iter().map(|value| {
        let set = file.set_xattr(CAPABILITY, value, XattrMode::Any);
        set.err().map(|error| Errno::from_raw_os_error(error.errno()))
    });
    assert_eq!(ours.collect::<Vec<_>>(), theirs);
}
