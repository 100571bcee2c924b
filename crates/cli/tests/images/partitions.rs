//! File systems in partitions of images and disks. The tables come from sfdisk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_testkit::{KernelMount, LoopDevice, Scratch, oracle};

use crate::support::{fail, larder, succeed, wait_until};

const MIB: u64 = 1 << 20;

/// Writes the partition table in `script` to a file or a disk.
#[track_caller]
pub(crate) fn partition(disk: &Path, script: &str) {
    let mut sfdisk = Command::new("sfdisk");
    let sfdisk = sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(disk);
    let mut sfdisk = sfdisk.stdin(Stdio::piped()).spawn().expect("sfdisk is installed");
    sfdisk.stdin.take().expect("it is piped").write_all(script.as_bytes()).expect("it reads");
    assert!(sfdisk.wait().expect("it ends").success());
}

/// A disk with these partitions.
fn disk(scratch: &Scratch, script: &str) -> String {
    let disk = scratch.sparse_file("disk", 512 * MIB);
    partition(&disk, script);
    disk.to_str().expect("paths here are text").to_owned()
}

/// A file with what a part of the disk holds.
fn part(scratch: &Scratch, disk: &str, start_mib: u64, len_mib: u64) -> PathBuf {
    let file = scratch.path().join("part");
    let dd = Command::new("dd")
        .args(["bs=1M", "conv=sparse", "status=none", &format!("if={disk}")])
        .arg(format!("of={}", file.display()))
        .args([format!("skip={start_mib}"), format!("count={len_mib}")])
        .status();
    assert!(dd.expect("dd starts").success());
    file
}

const THREE: &str = "label: gpt\nsize=100M, name=first\nsize=200M, name=second\nsize=150M\n";

#[test]
fn btrfs_is_found_in_its_partition_and_stays_in_it() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, THREE);
    let file = File::options().read(true).write(true).open(&disk).expect("it is there");
    // The last bytes before the second partition, and the first after it.
    let around = [101 * MIB - 4096, 301 * MIB];
    let pattern = [0xA5; 4096];
    for at in around {
        file.write_all_at(&pattern, at).expect("it is written");
    }
    let table = |file: &File| {
        let mut bytes = vec![0; 64 << 10];
        file.read_exact_at(&mut bytes, 0).expect("it is read");
        bytes
    };
    let before = table(&file);
    succeed(&format!("mkfs -q --partition 2 {disk}"));
    succeed(&format!("mkdir {disk}:/directory"));
    succeed(&format!("cp {} {disk}:/directory/program", env!("CARGO_BIN_EXE_larder")));
    succeed(&format!("check --check-data-csum {disk}"));
    for place in ["", "--partition 2 ", "--offset 101M "] {
        assert_eq!(succeed(&format!("ls {place}{disk}:/")), "directory\n", "{place}");
    }
    for at in around {
        let mut found = [0; 4096];
        file.read_exact_at(&mut found, at).expect("it is read");
        assert_eq!(found, pattern);
    }
    assert!(table(&file) == before, "the partition table changed");
    let part = part(&scratch, &disk, 101, 200);
    oracle::check(std::slice::from_ref(&part), true).unwrap_or_else(|error| panic!("{error}"));
    let kernel = KernelMount::open(&[part], "ro");
    let copy = fs::read(kernel.path().join("directory/program")).expect("it is there");
    assert!(copy == fs::read(env!("CARGO_BIN_EXE_larder")).expect("it is there"));
}

#[test]
fn what_is_ambiguous_or_missing_is_said() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, THREE);
    let message = fail(&format!("ls {disk}:/"));
    assert!(message.contains("btrfs is in none of its partitions: 1 ('first', 104857600 bytes"));
    let message = fail(&format!("mkfs -q {disk}"));
    assert!(message.contains("--partition N uses one partition"), "{message}");
    let message = fail(&format!("mkfs -q --partition 3 -b 151M {disk}"));
    assert!(message.contains("has 157286400 bytes, fewer than"), "{message}");
    for number in [2, 3] {
        succeed(&format!("mkfs -q --partition {number} {disk}"));
    }
    let message = fail(&format!("ls {disk}:/"));
    assert!(message.contains("btrfs is in several partitions: 2 ('second', "), "{message}");
    assert!(message.contains(", 3 (157286400 bytes from byte 315621376)"), "{message}");
    assert_eq!(succeed(&format!("ls --partition 3 {disk}:/")), "");
    let message = fail(&format!("ls --partition 7 {disk}:/"));
    assert!(message.contains("it has no partition 7, but these: 1 ("), "{message}");
    let message = fail(&format!("ls --offset 1G {disk}:/"));
    assert!(message.contains("it ends at byte 536870912, before byte 1073741824"), "{message}");
    let message = fail(&format!("ls --partition 0 {disk}:/"));
    assert!(message.contains("'0' is not the number of a partition"), "{message}");
    // A file that was cut off.
    let file = File::options().write(true).open(&disk).expect("it is there");
    file.set_len(400 * MIB).expect("it is cut");
    let message = fail(&format!("ls --partition 3 {disk}:/"));
    assert!(message.contains("before the end of its partition 3"), "{message}");
    file.set_len(0).expect("it is cut");
    let message = fail(&format!("ls --partition 1 {disk}:/"));
    assert!(message.contains("it has no partition table"), "{message}");
}

#[test]
fn logical_partitions_and_larger_sectors_are_understood() {
    let scratch = Scratch::new();
    let dos = "label: dos\nd1: size=20M\nd2: size=400M, type=5\nd5: size=130M\nd6: size=200M\n";
    let disk_of_dos = disk(&scratch, dos);
    succeed(&format!("mkfs -q --partition 6 {disk_of_dos}"));
    assert_eq!(succeed(&format!("ls {disk_of_dos}:/")), "");
    let message = fail(&format!("ls --partition 2 {disk_of_dos}:/"));
    assert!(message.contains("it has no partition 2, but these: 1 ("), "{message}");
    fs::remove_file(disk_of_dos).expect("it is there");

    let disk = scratch.sparse_file("disk", 512 * MIB);
    let device = LoopDevice::attach_with_sectors(&disk, 4096);
    partition(device.path(), "label: gpt\nsize=100M\nsize=200M\n");
    drop(device);
    let disk = disk.to_str().expect("paths here are text");
    succeed(&format!("mkfs -q --partition 2 {disk}"));
    let part = part(&scratch, disk, 101, 200);
    oracle::check(&[part], true).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(succeed(&format!("ls {disk}:/")), "");
    // The backup at the end counts too.
    File::options().write(true).open(disk).unwrap().write_all_at(&[0; 512], 4096).unwrap();
    assert_eq!(succeed(&format!("ls {disk}:/")), "");
}

#[test]
fn partitions_of_a_disk_are_used_side_by_side() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, THREE);
    for number in [2, 3] {
        succeed(&format!("mkfs -q --partition {number} {disk}"));
    }
    let device = LoopDevice::attach_disk(Path::new(&disk));
    let device = device.path().to_str().expect("paths here are text");
    let kernel = scratch.path().join("kernel");
    fs::create_dir(&kernel).expect("it is new");
    let run = |arguments: &[&OsStr]| {
        let status = Command::new(arguments[0]).args(&arguments[1..]).status();
        assert!(status.expect("it starts").success());
    };
    // Not every kernel reads tables itself.
    run(&["partx".as_ref(), "--update".as_ref(), device.as_ref()]);
    let uuid = Command::new("blkid")
        .args(["-o", "value", "-s", "UUID"])
        .arg(format!("{device}p3"))
        .output();
    let uuid = String::from_utf8(uuid.expect("it starts").stdout).expect("it is text");
    let node = format!("{device}p2");
    run(&["mount".as_ref(), node.as_ref(), kernel.as_ref()]);
    let beside = larder(["mkdir", "--partition", "3", &format!("{device}:/beside")]);
    let refused = fail(&format!("mkdir --partition 2 {device}:/refused"));
    run(&["umount".as_ref(), kernel.as_ref()]);
    let said = String::from_utf8_lossy(&beside.stderr);
    assert!(beside.status.success() && said.is_empty(), "{said}");
    assert!(refused.contains(&format!("{device}p2: mounted at {}", kernel.display())), "{refused}");
    assert_eq!(succeed(&format!("ls {device}p3:/")), "beside\n");
    // With one file system, disk and partition would both be it.
    // Mount namespaces of other programs may have a copy of the mount for a while.
    let wipe = || Command::new("wipefs").args(["-qa", &node]).status().expect("it starts");
    wait_until("nobody else has the partition", || wipe().success());
    assert_eq!(succeed(&format!("ls UUID={}:/", uuid.trim())), "beside\n");
}
