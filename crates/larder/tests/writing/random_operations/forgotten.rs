//! What the kernel forgets, so that twins need not agree about it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use larder_testkit::{Content, ImageSpec, KernelImage, Scale, oracle};
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

use super::super::namespace::COMPRESSION;

const FOLDERS: usize = 400;

/// A directory passes its compression property on. A kernel that has to read the directory first
/// misses the property if the inode's item is the last of its leaf, with the reference in the next.
#[test]
fn requests_that_the_kernel_does_not_pass_on() {
    let spec = ImageSpec::new("forgotten").node_size(4096);
    let image = KernelImage::build(&spec, &Content::new(1).scale(Scale::Small));
    // Of many lengths, so that leaves end anywhere.
    let folder = |number: usize| format!("folder-{number}-{}", "x".repeat(number % 37));
    let mount = image.mount("");
    let numbers: Vec<u64> = (0..FOLDERS)
        .map(|number| {
            let path = mount.path().join(folder(number));
            std::fs::create_dir(&path).unwrap();
            lsetxattr(&path, COMPRESSION, b"zstd", XattrFlags::empty()).unwrap();
            std::fs::metadata(path).unwrap().ino()
        })
        .collect();
    drop(mount);
    let last = inodes_that_end_leaves(&oracle::dump_tree(image.devices(), &["-t", "5"]).unwrap());
    let mount = image.mount("");
    // Read before a change moves the ends of leaves.
    let folders: Vec<File> =
        (0..FOLDERS).map(|number| File::open(mount.path().join(folder(number))).unwrap()).collect();
    for (number, inode) in numbers.iter().enumerate() {
        let path = mount.path().join(folder(number)).join("file");
        std::fs::write(&path, b"").unwrap();
        let is_passed_on = lgetxattr(&path, COMPRESSION, &mut [0_u8; 10]).is_ok();
        assert_eq!(is_passed_on, !last.contains(inode), "{}", folder(number));
    }
    drop(folders);
    assert!(numbers.iter().any(|inode| last.contains(inode)), "no leaf ends with an inode");
}

/// Numbers of inodes whose item is the last of its leaf, as `btrfs inspect-internal` prints a tree.
fn inodes_that_end_leaves(dump: &str) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut last = "";
    for line in dump.lines().chain(["leaf"]) {
        if line.trim_start().starts_with("item ") {
            last = line;
        } else if line.starts_with("leaf") {
            let key = last.split_once(" key (").map_or("", |(_, key)| key);
            let mut words = key.split(' ');
            if let (Some(inode), Some("INODE_ITEM")) = (words.next(), words.next()) {
                found.extend(inode.parse::<u64>());
            }
        }
    }
    found
}
