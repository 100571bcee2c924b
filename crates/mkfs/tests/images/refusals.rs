//! Refusals, which change nothing.

use std::fs;
use std::path::PathBuf;
use std::slice::from_ref;

use larder_format::Profile;
use larder_mkfs::{MkfsError, MkfsOptions, mkfs};
use larder_testkit::{LoopDevice, Scratch};

use crate::common::{MIB, Made, Source, options};

fn refused(files: &[PathBuf], options: &MkfsOptions) -> String {
    let before: Vec<_> = files.iter().map(|file| fs::read(file).ok()).collect();
    let error = mkfs(files, options).unwrap_err().to_string();
    let after: Vec<_> = files.iter().map(|file| fs::read(file).ok()).collect();
    assert!(before == after, "refused with {error:?}, but changed");
    error
}

#[test]
fn devices_with_content_unless_forced() {
    let made = Made::new(&[150 * MIB], &MkfsOptions::default());
    let error = refused(&made.files, &MkfsOptions::default());
    assert!(error.contains("holds a btrfs file system, and"), "{error}");
    let forced = MkfsOptions { force: true, ..MkfsOptions::default() };
    mkfs(&made.files, &forced).unwrap();

    let scratch = Scratch::new();
    for (program, content) in [("mkfs.ext4", "ext2, ext3 or ext4"), ("mkswap", "swap space")] {
        let file = scratch.sparse_file("other", 150 * MIB);
        larder_testkit::command::run(program, [&file]).unwrap();
        let error = refused(&[file], &MkfsOptions::default());
        assert!(error.contains(content), "{error}");
    }
}

#[test]
fn devices_in_use() {
    let made = Made::new(&[150 * MIB], &MkfsOptions::default());
    let forced = MkfsOptions { force: true, ..MkfsOptions::default() };
    let mount = made.mount("");
    let error = mkfs(&made.files, &forced).unwrap_err().to_string();
    assert!(error.contains("mounted at"), "{error}");
    let device = mount.devices().next().unwrap().to_owned();
    let error = mkfs(&[device], &forced).unwrap_err().to_string();
    assert!(error.contains("mounted at"), "{error}");
    drop(mount);
    let twice = [made.files[0].clone(), made.files[0].clone()];
    let error = mkfs(&twice, &forced).unwrap_err().to_string();
    assert!(error.ends_with(": given twice"), "{error}");
}

#[test]
fn too_small_or_too_few_devices() {
    let scratch = Scratch::new();
    let small = scratch.sparse_file("small", 50 * MIB);
    let error = refused(from_ref(&small), &MkfsOptions::default());
    assert!(error.contains("every device needs 98566144"), "{error}");
    let smaller = MkfsOptions { byte_count: Some(98_566_143), ..MkfsOptions::default() };
    refused(from_ref(&small), &smaller);
    let larger = MkfsOptions { byte_count: Some(98_566_144), ..MkfsOptions::default() };
    mkfs(&[small], &larger).unwrap();

    let files = ["a", "b"].map(|name| scratch.sparse_file(name, 200 * MIB));
    let raid6 = MkfsOptions { data_profile: Some(Profile::Raid6), ..MkfsOptions::default() };
    let error = refused(&files, &raid6);
    assert!(error.contains("raid6 needs at least 3 devices, there are 2"), "{error}");
    let error = refused(&[scratch.path().join("missing")], &MkfsOptions::default());
    assert!(error.contains("missing does not exist"), "{error}");
    assert!(!scratch.path().join("missing").exists());
}

#[test]
fn content_that_does_not_fit() {
    let source = Scratch::new();
    fs::write(source.path().join("large"), vec![1; 60 << 20]).unwrap();
    let scratch = Scratch::new();
    let file = scratch.sparse_file("device", 100 * MIB);
    let options = MkfsOptions { byte_count: Some(100 * MIB), ..options(source.path()) };
    let error = mkfs(from_ref(&file), &options).unwrap_err();
    assert!(matches!(error, MkfsError::NoSpace { what: "data" }), "{error}");
    let found = larder_testkit::command::run("blkid", ["--probe".as_ref(), file.as_os_str()]);
    assert!(found.is_err(), "half a file system is recognized: {found:?}");
}

#[test]
fn content_that_cannot_be_read_is_named() {
    let source = Source::new();
    let scratch = Scratch::new();
    let file = scratch.sparse_file("device", 200 * MIB);
    let missing = options(&source.path().join("nowhere"));
    assert!(refused(from_ref(&file), &missing).contains("nowhere: "));
    let not_a_folder = options(&source.path().join("data/large"));
    assert!(refused(from_ref(&file), &not_a_folder).contains("data/large: "));

    let subvolumes = vec!["no/such".parse().unwrap()];
    let options = MkfsOptions { subvolumes, ..options(source.path()) };
    assert!(refused(&[file], &options).starts_with("no/such: "));
}

#[test]
fn an_image_is_not_copied_into_itself() {
    let source = Scratch::new();
    let inside = source.sparse_file("image", 200 * MIB);
    let error = refused(&[inside], &options(source.path()));
    assert!(error.contains("image: the file system would be copied into itself"), "{error}");
    // A target that does not exist yet is not in the source.
    let new = source.path().join("new");
    fs::remove_file(source.path().join("image")).unwrap();
    mkfs(from_ref(&new), &options(source.path())).unwrap();
    larder_testkit::oracle::check(&[new], true).unwrap();
}

#[test]
fn an_attribute_that_does_not_fit_a_leaf_is_named() {
    let source = Scratch::new();
    let path = source.path().join("labelled");
    fs::write(&path, "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(&path, "user.large", &[1; 5000], flags).unwrap();
    let scratch = Scratch::new();
    let file = scratch.sparse_file("device", 200 * MIB);
    let options = MkfsOptions { node_size_bytes: Some(4096), ..options(source.path()) };
    let error = mkfs(&[file], &options).unwrap_err().to_string();
    assert!(error.contains("labelled: the extended attribute 'user.large' does"), "{error}");
}

#[test]
fn block_devices_are_formatted_and_limited() {
    let scratch = Scratch::new();
    let file = scratch.sparse_file("backing", 300 * MIB);
    let device = LoopDevice::attach(&file);
    let target = [device.path().to_owned()];
    let too_long = MkfsOptions { byte_count: Some(400 * MIB), ..MkfsOptions::default() };
    let error = mkfs(&target, &too_long).unwrap_err().to_string();
    assert!(error.contains("314572800 bytes, fewer than 419430400"), "{error}");
    let options = MkfsOptions { byte_count: Some(200 * MIB), ..MkfsOptions::default() };
    assert_eq!(mkfs(&target, &options).unwrap().total_bytes, 200 * MIB);
    drop(device);
    larder_testkit::oracle::check(&[file], true).unwrap();
}

/// After an error of any kind at any time, created files are gone, and others have their old
/// length.
#[test]
fn files_created_in_vain_are_removed() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let source = Scratch::new();
    fs::write(source.path().join("large"), vec![1; 60 << 20]).unwrap();
    let holds_something = Made::new(&[150 * MIB], &MkfsOptions::default());
    let occupied = holds_something.files[0].clone();
    let short = scratch.sparse_file("short", 10 * MIB);
    let long = MkfsOptions { byte_count: Some(150 * MIB), ..MkfsOptions::default() };
    for (files, options) in [
        (vec![at("new")], MkfsOptions { byte_count: Some(MIB), ..MkfsOptions::default() }),
        (vec![at("new"), occupied], long.clone()),
        (vec![at("new"), at("no/such/folder")], long),
        (vec![at("new"), short], options_of_small(source.path())),
    ] {
        let lengths = |files: &[PathBuf]| -> Vec<Option<u64>> {
            files.iter().map(|file| Some(fs::metadata(file).ok()?.len())).collect()
        };
        let before = lengths(&files);
        let error = mkfs(&files, &options).unwrap_err().to_string();
        assert_eq!(lengths(&files), before, "{error}");
    }
}

/// Devices that are too small for the content of `root`, which shows only during the copy.
fn options_of_small(root: &std::path::Path) -> MkfsOptions {
    MkfsOptions { byte_count: Some(100 * MIB), data_profile: Some(Profile::Raid1), ..options(root) }
}
