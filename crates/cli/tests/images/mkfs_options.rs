//! Options of mkfs that newer releases of btrfs-progs have: what the kernel and its tools find in
//! the result.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::slice::from_ref;

use larder_testkit::{KernelMount, Scratch, oracle};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

fn mkfs(folder: &Path, options: &str) -> Output {
    let mut command = Command::new(LARDER);
    command.args(["mkfs", "-q", "-f", "-b", "300M"]).args(options.split(' ')).arg("disk.img");
    command.current_dir(folder).output().expect("it starts")
}

/// The flags of an inode that `btrfs inspect-internal dump-tree` shows.
fn flags_of(image: &Path, inode: u64) -> String {
    let tree = oracle::dump_tree(&[image.to_owned()], &["-t", "fs"]).expect("it can be dumped");
    let item = tree.split(&format!("({inode} INODE_ITEM 0) itemoff")).nth(1).expect("it is there");
    let flags = item.split(" flags ").nth(1).expect("it has flags");
    flags.split(['(', ')']).nth(1).expect("they have names").to_owned()
}

#[test]
fn files_are_written_in_place_and_without_checksums_as_flags_say() {
    let scratch = Scratch::new();
    let root = scratch.path().join("root");
    fs::create_dir_all(root.join("vm/deep")).unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    let text = "the same words again and again\n".repeat(20_000);
    for name in ["plain", "unsummed", "vm/disk", "vm/deep/own", "vm/deep/tiny", "sub/inside"] {
        let len = if name.ends_with("tiny") { 30 } else { text.len() };
        fs::write(root.join(name), &text[..len]).unwrap();
    }
    let options = "--rootdir root --compress zstd --subvol sub --inode-flags nodatacow:./vm/ \
                   --inode-flags nodatasum:unsummed --inode-flags nodatasum:vm/deep/own \
                   --inode-flags nodatacow:sub";
    let made = mkfs(scratch.path(), &options.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let image = scratch.path().join("disk.img");
    oracle::check(from_ref(&image), true).unwrap_or_else(|error| panic!("{error}"));
    let checked = Command::new(LARDER).args(["check", "--check-data-csum"]).arg(&image).output();
    assert!(checked.expect("it starts").status.success());

    let kernel = KernelMount::open(from_ref(&image), "ro");
    let number = |name: &str| fs::metadata(kernel.path().join(name)).unwrap().ino();
    for (name, flags) in [
        ("plain", "none"),
        ("unsummed", "NODATASUM"),
        ("vm", "NODATASUM|NODATACOW"),
        ("vm/disk", "NODATASUM|NODATACOW"),
        ("vm/deep", "NODATASUM|NODATACOW"),
        ("vm/deep/own", "NODATASUM"),
        ("vm/deep/tiny", "NODATASUM|NODATACOW"),
    ] {
        assert_eq!(flags_of(&image, number(name)), flags, "{name}");
    }
    for name in ["plain", "unsummed", "vm/disk", "vm/deep/own", "sub/inside"] {
        assert_eq!(fs::read_to_string(kernel.path().join(name)).unwrap(), text, "{name}");
        let extents = Command::new("filefrag").arg("-v").arg(kernel.path().join(name)).output();
        let extents = String::from_utf8(extents.expect("it starts").stdout).unwrap();
        assert_eq!(extents.contains("encoded"), name == "plain", "{name}: {extents}");
    }
    let listed = Command::new("lsattr").arg(kernel.path().join("sub")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.split(' ').next().unwrap().contains('C'), "a subvolume inherits: {listed}");
    let checksums = oracle::dump_tree(from_ref(&image), &["-t", "csum"]).unwrap();
    // Only the compressed file has any, which takes a few sectors.
    let ranges = checksums.lines().filter(|line| line.contains("range start "));
    let len = |line: &str| line.split(" length ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    let summed: u64 = ranges.filter_map(len).sum();
    assert!(summed > 0 && summed < text.len() as u64 / 4, "{checksums}");
    drop(kernel);
    // The directory passes its flags on.
    let kernel = KernelMount::open(from_ref(&image), "");
    fs::write(kernel.path().join("vm/new"), "x").unwrap();
    let listed = Command::new("lsattr").arg(kernel.path().join("vm/new")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).split(' ').next().unwrap().contains('C'));
}

#[test]
fn what_mkfs_cannot_do_is_refused_with_a_reason() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path().join("root/d")).unwrap();
    for (options, expected) in [
        ("--rootdir root --inode-flags nodatacow:none", "none: no such file or directory"),
        ("--rootdir root --inode-flags nodatacow:d/../d", "without '..'"),
        ("--rootdir root --inode-flags nodatacow:d --inode-flags nodatasum:./d", "flags twice"),
        ("--rootdir root --inode-flags secret:d", "unknown inode flag 'secret'"),
        ("--rootdir root --inode-flags nodatacow", "is not FLAGS:PATH"),
        ("--inode-flags nodatacow:d", "--rootdir"),
        ("--rootdir root --reflink", "never shared"),
        ("-O zoned", "no feature 'zoned': "),
        ("-O squota", "no feature 'squota': "),
        ("-O raid-stripe-tree", "no feature 'raid-stripe-tree': "),
        ("-O extent-tree-v2", "no feature 'extent-tree-v2': "),
        ("-O wibble", "unknown feature 'wibble'"),
    ] {
        let refused = mkfs(scratch.path(), options);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(expected), "{options}: {said}");
        assert!(!scratch.path().join("disk.img").exists(), "{options}");
    }
    for options in
        ["-O ^fst,^bgt", "-O ^free-space-tree,^block-group-tree", "-O fst,bgt,^squota,^zoned"]
    {
        let made = mkfs(scratch.path(), options);
        assert!(made.status.success(), "{options}: {}", String::from_utf8_lossy(&made.stderr));
        let dumped = oracle::dump_super(&scratch.path().join("disk.img")).unwrap();
        let is_on = dumped.contains("FREE_SPACE_TREE_VALID");
        assert_eq!(is_on, options.contains("fst,bgt,"), "{options}");
    }
}
