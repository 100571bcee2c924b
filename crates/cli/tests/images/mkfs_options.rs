//! Options of mkfs that newer releases of btrfs-progs have: what the kernel and its tools find in
//! the result.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::slice::from_ref;

use larder_testkit::{KernelMount, LoopDevice, Scratch, oracle};

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

fn len_of(folder: &Path) -> u64 {
    fs::metadata(folder.join("disk.img")).unwrap().len()
}

#[test]
fn a_file_that_is_long_enough_keeps_its_length() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::create_dir(folder.join("root")).unwrap();
    fs::write(folder.join("root/file"), vec![7; 1 << 20]).unwrap();
    for (mib, options) in [(110, ""), (44, "-M "), (60, "-m single "), (16, "-M ")] {
        let disk = scratch.sparse_file("disk.img", mib << 20);
        let mut command = Command::new(LARDER);
        let line = format!("mkfs -q {options}--rootdir root disk.img");
        let output = command.args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(len_of(folder), mib << 20, "{line}");
        oracle::check(from_ref(&disk), true).unwrap_or_else(|error| panic!("{error}"));
        fs::remove_file(disk).unwrap();
    }
    // Where the usual chunks for metadata leave too little for data, there are smaller ones.
    fs::write(folder.join("root/large"), vec![7; 972 << 20]).unwrap();
    let disk = scratch.sparse_file("disk.img", 1 << 30);
    let full = "mkfs -q -m single --rootdir root disk.img";
    let output = Command::new(LARDER).args(full.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(len_of(folder), 1 << 30);
    oracle::check(from_ref(&disk), true).unwrap_or_else(|error| panic!("{error}"));
    let mount = KernelMount::open(from_ref(&disk), "");
    fs::remove_file(mount.path().join("large")).unwrap();
    fs::write(mount.path().join("small"), vec![7; 1 << 20]).unwrap();
    drop(mount);
    // What does not fit makes it longer, and an error leaves it as it was.
    fs::write(folder.join("root/large"), vec![7; 100 << 20]).unwrap();
    let disk = scratch.sparse_file("disk.img", 60 << 20);
    let grown = "mkfs -q -m single --rootdir root disk.img";
    let output = Command::new(LARDER).args(grown.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(len_of(folder) > 100 << 20);
    oracle::check(from_ref(&disk), true).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn mixed_file_systems_may_have_16_mib() {
    let scratch = Scratch::new();
    let disk = scratch.sparse_file("disk.img", 16 << 20);
    let run = |words: &[&str]| {
        let output = Command::new(LARDER).args(words).arg(&disk).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["mkfs", "-q", "-M"]);
    let mount = KernelMount::open(from_ref(&disk), "");
    fs::write(mount.path().join("file"), vec![7; 2 << 20]).unwrap();
    mount.sync();
    drop(mount);
    oracle::check(from_ref(&disk), true).unwrap_or_else(|error| panic!("{error}"));
    let image = format!("{}:/copy", disk.display());
    let file = scratch.path().join("file");
    fs::write(&file, vec![8; 1 << 20]).unwrap();
    let copied = Command::new(LARDER).arg("cp").arg(&file).arg(image).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    run(&["check"]);
    oracle::check(from_ref(&disk), true).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_new_superblock_is_shown_as_btrfs_shows_it() {
    let scratch = Scratch::new();
    assert!(mkfs(scratch.path(), "-L new").status.success());
    let disk = scratch.path().join("disk.img");
    let shown = |program: &str, options: &str| {
        let words = ["inspect-internal", "dump-super", options];
        Command::new(program).args(words).arg(&disk).output().expect("it starts").stdout
    };
    for options in ["-f", "-fa"] {
        let [ours, theirs] = [LARDER, "btrfs"].map(|program| shown(program, options));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
    }
}

#[test]
fn a_uuid_of_another_block_device_is_refused() {
    const UUID: &str = "7e5b4cf3-6d1d-4b8e-9f7e-1c3a2b5d6e70";
    let scratch = Scratch::new();
    let files = ["first", "second"].map(|name| scratch.sparse_file(name, 300 << 20));
    let devices = files.each_ref().map(|file| LoopDevice::attach(file));
    let mkfs = |target: &Path| {
        let mut command = Command::new(LARDER);
        command.args(["mkfs", "-q", "-f", "-U", UUID]).arg(target).output().unwrap()
    };
    let [first, second] = devices.each_ref().map(LoopDevice::path);
    assert!(mkfs(first).status.success());
    let refused = mkfs(second);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(UUID), "{said}");
    assert!(said.contains(first.to_str().unwrap()), "{said}");
    // Other file systems have uuids too.
    let other = scratch.sparse_file("other", 300 << 20);
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-U", "7e5b4cf3-0000-4b8e-9f7e-1c3a2b5d6e70"]).arg(&other);
    assert!(make.status().unwrap().success());
    let other = LoopDevice::attach(&other);
    let mut command = Command::new(LARDER);
    command.args(["mkfs", "-q", "-f", "-U", "7e5b4cf3-0000-4b8e-9f7e-1c3a2b5d6e70"]);
    let refused = command.arg(second).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(other.path().to_str().unwrap()), "{said}");
    // The same one again is no other.
    assert!(mkfs(first).status.success());
    assert!(mkfs(&scratch.sparse_file("file", 300 << 20)).status.success());
}
