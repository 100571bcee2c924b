//! Users and groups: by name, and with other ids in an image than on this system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{KernelMount, Scratch};

use crate::support::{fail, succeed};

#[track_caller]
fn shell(folder: &Path, line: &str) -> String {
    let output = Command::new("bash").args(["-euc", line]).current_dir(folder).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder with a tree of a container's files, whose ids begin at 100000 here, and an image.
fn scratch() -> (Scratch, PathBuf, String) {
    let scratch = Scratch::new();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("it is new");
    shell(
        &tree,
        "echo 1 > a; echo 2 > b; chown 100001:100002 a; chown 7:8 b
         setfacl -m u:100005:r,u:9:r,g:100006:r a",
    );
    let image = scratch.path().join("image").to_str().expect("paths here are text").to_owned();
    (scratch, tree, image)
}

const MAPS: &str = "--map-users 100000:0:65536 --map-groups 100000:0:65536";

/// The owners of `a` and `b` in a folder, and the named users and groups in the ACL of `a`.
fn seen(folder: &Path) -> String {
    shell(
        folder,
        "stat -c %u:%g a b; getfacl -n -p a | grep -E '^(user|group):[0-9]' | cut -d: -f1,2",
    )
}

#[test]
fn copies_have_mapped_owners_in_both_directions() {
    let (scratch, tree, image) = scratch();
    let before = seen(&tree);
    assert_eq!(before, "100001:100002\n7:8\nuser:9\nuser:100005\ngroup:100006\n");
    succeed(&format!("mkfs -q -b 256M {image}"));
    succeed(&format!("cp -a {MAPS} {} {image}:/in", tree.display()));
    succeed(&format!("cp -a {MAPS} --squash root:root {} {image}:/squashed", tree.display()));
    let kernel = KernelMount::open(&[image.clone().into()], "ro");
    assert_eq!(seen(&kernel.path().join("in")), "1:2\n7:8\nuser:5\nuser:9\ngroup:6\n");
    let squashed = seen(&kernel.path().join("squashed"));
    assert!(squashed.starts_with("1:2\n0:0\n"), "{squashed}");
    drop(kernel);
    let back = scratch.path().join("back");
    succeed(&format!("cp -a {MAPS} {image}:/in {}", back.display()));
    // What was in no range is in one now.
    assert_eq!(
        seen(&back),
        "100001:100002\n100007:100008\nuser:100005\nuser:100009\ngroup:100006\n"
    );
    let between = format!("cp -a --map-users 1:50 {image}:/in {image}:/between");
    succeed(&between);
    assert!(succeed(&format!("stat {image}:/between/a")).contains("50"), "{between}");
    let refused = fail(&format!("cp {MAPS} {}/a {image}:/x", tree.display()));
    assert!(refused.contains("add --archive"), "{refused}");
    let twice = fail(&format!("cp -a --map-users 5:6:9 --map-users 7:90 {image}:/in x"));
    assert!(twice.contains("--map-users: id 7 is mapped twice"), "{twice}");
}

#[test]
fn new_file_systems_have_mapped_owners() {
    let (_scratch, tree, image) = scratch();
    let make = |options: &str| {
        succeed(&format!("mkfs -q -f -b 256M --rootdir {} {options} {image}", tree.display()));
        seen(KernelMount::open(&[image.clone().into()], "ro").path())
    };
    assert_eq!(make(MAPS), "1:2\n7:8\nuser:5\nuser:9\ngroup:6\n");
    assert!(make("--squash daemon:daemon").starts_with("1:1\n1:1\n"));
    assert!(make("--owner root:daemon").starts_with("0:1\n0:1\n"));
    let refused = fail(&format!("mkfs -q -f {MAPS} {image}"));
    assert!(refused.contains("without --rootdir"), "{refused}");
}

#[test]
fn names_are_those_of_the_image() {
    let (scratch, tree, image) = scratch();
    fs::create_dir(tree.join("etc")).expect("it is new");
    fs::write(tree.join("etc/passwd"), "root:x:0:0::/:\nguest:x:1234:1::/:\n").unwrap();
    succeed(&format!("mkfs -q -b 256M --rootdir {} {image}", tree.display()));
    succeed(&format!("chown guest:daemon {image}:/a"));
    let kernel = KernelMount::open(&[image.clone().into()], "ro");
    let owned = fs::metadata(kernel.path().join("a")).expect("it is there");
    assert_eq!((owned.uid(), owned.gid()), (1234, 1));
    drop(kernel);
    let unknown = fail(&format!("chown nobody-knows {image}:/a"));
    assert!(unknown.contains("'nobody-knows': no user has this name"), "{unknown}");
    drop(scratch);
}
