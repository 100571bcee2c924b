//! Uncommitted changes show at once, and committed ones stay: labels, lists of subvolumes, files
//! without names.

use larder::{ErrorKind, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage};

use super::{check, open};

#[test]
fn the_label_changes_and_stays() {
    let image = KernelImage::build(&ImageSpec::new("label").label("bread"), &Content::new(51));
    let fs = open(&image);
    assert_eq!(fs.label(), "bread");
    fs.set_label("butter").unwrap();
    assert_eq!(fs.label(), "butter");
    fs.set_label("x".repeat(255)).unwrap();
    for label in ["x".repeat(256), "two\nlines".into(), "zero\0".into()] {
        assert_eq!(fs.set_label(label).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    drop(fs);
    check(&image, "labels");
    let fs = open(&image);
    assert_eq!(fs.label(), &*"x".repeat(255));
    fs.set_label("").unwrap();
    drop(fs);
    assert_eq!(open(&image).label(), "");
    let super_block = larder_testkit::oracle::dump_super(&image.devices()[0]).unwrap();
    assert!(super_block.lines().any(|line| line.trim_end() == "label"), "{super_block}");
}

#[test]
fn lists_of_subvolumes_show_uncommitted_ones() {
    let image = KernelImage::build(&ImageSpec::new("list"), &Content::new(52));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let made = root.create_subvolume("made").unwrap();
    let listed = |id| fs.subvolumes().map(Result::unwrap).find(|info| info.id == id);
    let before = listed(made.id()).unwrap();
    made.create("file", 0o644).unwrap();
    let after = listed(made.id()).unwrap();
    assert!(after.generation > before.generation, "{before:?} {after:?}");
    assert_eq!(after, made.info().unwrap());
    root.create_directory("folder", 0o755).unwrap();
    root.rename("made", "folder/moved").unwrap();
    let name = listed(made.id()).unwrap().name.unwrap();
    assert_eq!(name.name, b"moved");
    assert_eq!(name.directory, root.lookup("folder").unwrap().number());
    assert_eq!(made.path().unwrap().to_str(), Some("folder/moved"));
    let snapshot = made.snapshot_to(&root, "snapshot", SnapshotKind::ReadOnly).unwrap();
    assert!(listed(snapshot.id()).unwrap().is_read_only);
    root.delete_subvolume("folder/moved").unwrap();
    assert!(listed(made.id()).unwrap().is_being_deleted, "it is in use");
    let id = made.id();
    drop(made);
    fs.delete_unlinked();
    assert_eq!(listed(id), None);
    drop((root, snapshot, fs));
    check(&image, "subvolumes");
}

#[test]
fn files_without_names_are_gone_after_a_crash_unless_they_were_linked() {
    let image = KernelImage::build(&ImageSpec::new("unnamed"), &Content::new(53));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let lost = root.create_unnamed("", 0o600).unwrap();
    let kept = root.create_unnamed("", 0o640).unwrap();
    lost.write_at(&vec![1; 100_000], 0).unwrap();
    kept.write_at(&vec![2; 100_000], 0).unwrap();
    assert_eq!(root.inode(lost.number()).unwrap_err().kind(), ErrorKind::NotFound);
    let snapshot = root.snapshot("snapshot", SnapshotKind::Writable).unwrap();
    assert_eq!(snapshot.inode(kept.number()).unwrap_err().kind(), ErrorKind::NotFound);
    root.link(&kept, "kept").unwrap();
    root.link(&kept, "kept-too").unwrap();
    root.remove_file("kept").unwrap();
    let unlinked = root.create("unlinked", 0o600).unwrap();
    root.remove_file("unlinked").unwrap();
    assert_eq!(root.link(&unlinked, "again").unwrap_err().kind(), ErrorKind::NotFound);
    fs.sync().unwrap();
    let numbers = (lost.number(), kept.number());
    drop((root, snapshot, lost, kept, unlinked, fs));
    let (lost, kept) = numbers;
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    assert_eq!(root.inode(lost).unwrap_err().kind(), ErrorKind::NotFound);
    let found = root.open_file("kept-too").unwrap();
    assert_eq!((found.number(), found.metadata().nlink, found.len_bytes()), (kept, 1, 100_000));
    fs.sync().unwrap();
    drop((root, found, fs));
    check(&image, "files without names");
}
