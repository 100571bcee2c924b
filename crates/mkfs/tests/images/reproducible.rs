//! The same input makes the same bytes.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;

use larder_format::{Profile, Uuid};
use larder_mkfs::MkfsOptions;
use larder_testkit::Scratch;

use crate::common::{self, MIB, Made, Source, options};

fn fixed(root_dir: &std::path::Path, threads: usize) -> MkfsOptions {
    MkfsOptions {
        uuid: Some(Uuid::from_u128(1)),
        device_uuid: Some(Uuid::from_u128(2)),
        source_date_epoch: Some(1_700_000_000),
        threads: NonZeroUsize::new(threads),
        ..options(root_dir)
    }
}

#[track_caller]
fn assert_same_files(one: &Made, other: &Made) {
    for (one, other) in one.files.iter().zip(&other.files) {
        let (one, other) = (fs::read(one).unwrap(), fs::read(other).unwrap());
        if let Some(at) = one.iter().zip(&other).position(|(a, b)| a != b) {
            panic!("the images differ, first at byte {at}");
        }
        assert_eq!(one.len(), other.len());
    }
}

#[test]
fn any_number_of_threads_makes_the_same_image() {
    let source = Source::new();
    let specs: Vec<_> = ["sub", "ro:sub/ro"].map(|spec| spec.parse().unwrap()).into();
    for compression in [None, Some("zstd".parse().unwrap()), Some("lzo".parse().unwrap())] {
        let make = |threads| {
            let subvolumes = specs.clone();
            let options = MkfsOptions { compression, subvolumes, ..fixed(source.path(), threads) };
            Made::new(&[200 * MIB], &options)
        };
        let one = make(1);
        one.check();
        for threads in [2, 7] {
            assert_same_files(&one, &make(threads));
        }
    }
}

#[test]
fn images_on_several_devices_are_the_same() {
    let source = Source::new();
    let make = |threads| {
        let (data_profile, metadata_profile) = (Some(Profile::Raid5), Some(Profile::Raid1));
        let options =
            MkfsOptions { data_profile, metadata_profile, ..fixed(source.path(), threads) };
        Made::new(&[200 * MIB; 3], &options)
    };
    assert_same_files(&make(1), &make(5));
}

/// A copy of the source, made at another time and in another order, makes the same image.
#[test]
fn a_copy_of_the_source_makes_the_same_image() {
    let (one, other) = (Scratch::new(), Scratch::new());
    for (root, order) in [(&one, [1, 2, 3]), (&other, [3, 1, 2])] {
        for number in order {
            let path = root.path().join(format!("file-{number}"));
            fs::write(&path, common::text(number * 3000)).unwrap();
        }
        fs::create_dir(root.path().join("folder")).unwrap();
    }
    let make = |root: &Scratch| Made::new(&[200 * MIB], &fixed(root.path(), 2));
    let made = make(&one);
    assert_same_files(&made, &make(&other));
    let mount = made.mount("ro");
    let status = mount.path().join("file-1").metadata().unwrap();
    assert_eq!([status.mtime(), status.ctime(), status.atime()], [1_700_000_000; 3]);
}

#[test]
fn uuids_are_random_by_default() {
    let source = Scratch::new();
    let make = || Made::new(&[200 * MIB], &options(source.path())).summary.uuid;
    assert_ne!(make(), make());
}
