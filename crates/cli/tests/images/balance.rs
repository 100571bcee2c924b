//! Balances of images, and of what the kernel has mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::command::run;
use larder_testkit::{KernelMount, Manifest, Scratch, oracle};

use crate::support::{fail, larder, succeed};

const MIB: u64 = 1 << 20;

/// An image with files in many block groups, of which most are deleted, and a snapshot.
fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.sparse_file("disk.img", 2 << 30);
    run("mkfs.btrfs", ["--quiet".as_ref(), image.as_os_str()]).unwrap();
    let mount = KernelMount::open(std::slice::from_ref(&image), "noatime");
    for number in 0..100 {
        let data: Vec<u8> = (0..6 * MIB).map(|at| (at / 4096 * 7 + number) as u8).collect();
        fs::write(mount.path().join(format!("file{number}")), data).unwrap();
    }
    btrfs(&["filesystem", "sync"], mount.path()).unwrap();
    for number in (0..100).filter(|number| number % 10 != 0) {
        fs::remove_file(mount.path().join(format!("file{number}"))).unwrap();
    }
    let snapshot = mount.path().join("snapshot");
    let args = ["subvolume".as_ref(), "snapshot".as_ref(), mount.path().as_os_str()];
    run("btrfs", args.into_iter().chain([snapshot.as_os_str()])).unwrap();
    fs::write(snapshot.join("own"), "of the snapshot").unwrap();
    btrfs(&["filesystem", "sync"], mount.path()).unwrap();
    image
}

fn btrfs(args: &[&str], path: &Path) -> Result<(), larder_testkit::command::CommandError> {
    run("btrfs", args.iter().map(AsRef::as_ref).chain([path.as_os_str()])).map(drop)
}

fn manifest(image: &Path) -> Manifest {
    let mount = KernelMount::open(&[image.to_owned()], "ro,skip_balance");
    Manifest::of_tree(mount.path())
}

fn assert_sound(image: &Path, before: &Manifest) {
    oracle::check(&[image.to_owned()], true).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(manifest(image), *before);
}

/// Bytes in block groups of data.
fn data_bytes(image: &Path) -> u64 {
    let usage = succeed(&format!("--format json filesystem df {}", image.display()));
    let parsed: serde_json::Value = serde_json::from_str(&usage).unwrap();
    let spaces = parsed["filesystem-df"].as_array().unwrap();
    let data = spaces.iter().filter(|space| space["bg-type"] == "Data");
    data.map(|space| space["total"].as_str().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn a_balance_gives_room_back() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (path, before) = (image.display(), manifest(&image));
    let total_before = data_bytes(&image);
    let plan = succeed(&format!("balance start --dry-run -dusage=80 {path}"));
    assert!(
        plan.contains("single data at ") && plan.contains("would become unallocated"),
        "{plan}"
    );
    assert_eq!(data_bytes(&image), total_before, "nothing has moved");
    let done = succeed(&format!("balance start -dusage=80 {path}"));
    assert!(done.starts_with("Done, had to relocate ") && done.ends_with(" chunks\n"), "{done}");
    assert!(!done.contains("relocate 0"), "{done}");
    assert!(data_bytes(&image) < total_before / 2, "{} of {total_before}", data_bytes(&image));
    assert_sound(&image, &before);
    let nothing = succeed(&format!("balance start -dlimit=0 -mlimit=0 {path}"));
    assert!(nothing.starts_with("Done, had to relocate 0 out of "), "{nothing}");
    let all = succeed(&format!("--format json balance start --full-balance {path}"));
    assert!(all.contains("\"state\": \"finished\""), "{all}");
    succeed(&format!("balance start -dconvert=dup,soft -mconvert=single -f {path}"));
    assert_sound(&image, &before);
    let status = succeed(&format!("balance status {path}"));
    assert_eq!(status, format!("No balance found on '{path}'\n"));
    let status = succeed(&format!("--format json balance status {path}"));
    assert!(status.contains("\"state\": \"none\""), "{status}");
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let path = image.display();
    for (options, reason) in [
        ("-dusage=101", "percentage"),
        ("-dconvert=raid1", "unable to start balance with target data profile raid1"),
        ("-mconvert=single", "less safe"),
        ("-dsoft", "only if changing profiles"),
        ("-s", "Refusing to explicitly operate on system chunks."),
    ] {
        let refused = fail(&format!("balance start {options} {path}"));
        assert!(refused.contains(reason), "{refused}");
    }
    for (command, reason) in [
        ("pause", "failed: Not running"),
        ("cancel", "failed: Not in progress"),
        ("resume", "failed: Not in progress"),
    ] {
        let line = format!("balance {command} {path}");
        let output = larder(line.split(' '));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(reason), "{said}");
    }
    oracle::check(&[image], true).unwrap_or_else(|error| panic!("{error}"));
}

/// The kernel pauses, Larder goes on; Larder pauses, the kernel goes on.
#[test]
fn each_goes_on_with_what_the_other_began() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (path, before) = (image.display(), manifest(&image));
    let mount = KernelMount::open(std::slice::from_ref(&image), "noatime");
    // It may end before it pauses.
    let mut is_paused = false;
    while !is_paused {
        btrfs(&["balance", "start", "--full-balance", "--background"], mount.path()).unwrap();
        is_paused = btrfs(&["balance", "pause"], mount.path()).is_ok();
    }
    drop(mount);
    let output = larder(format!("balance status -v {path}").split(' '));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with(&format!("Balance on '{path}' is paused\n")), "{said}");
    assert!(said.contains("  DATA (flags 0x0): balancing\n"), "{said}");
    let refused = fail(&format!("filesystem resize 1500M {path}"));
    assert!(refused.contains("a balance was begun"), "{refused}");
    let refused = fail(&format!("balance start -dusage=5 {path}"));
    assert!(refused.contains("a balance was begun"), "{refused}");
    let done = succeed(&format!("--format json balance resume {path}"));
    assert!(done.contains("\"state\": \"finished\""), "{done}");
    assert_sound(&image, &before);
    pause_at_once(&image);
    let mount = KernelMount::open(std::slice::from_ref(&image), "noatime,skip_balance");
    let mut status = Command::new("btrfs");
    let status = status.args(["balance", "status"]).arg(mount.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains("is paused"), "{status:?}");
    btrfs(&["balance", "resume"], mount.path()).unwrap();
    oracle::scrub(&mount).unwrap();
    drop(mount);
    assert_sound(&image, &before);
    pause_at_once(&image);
    succeed(&format!("balance cancel {path}"));
    succeed(&format!("balance status {path}"));
    assert_sound(&image, &before);
}

/// Begins a balance that pauses before it has moved everything.
fn pause_at_once(image: &Path) {
    let filesystem = larder::OpenOptions::new().write(true).open([image]).unwrap();
    let mut item = larder::BalanceItem::nothing();
    item.flags = larder::balance_flags::DATA.into();
    let balance = filesystem.balance(&item, &|_| filesystem.ask_balance_to_pause()).unwrap();
    assert_eq!(balance.end, larder::BalanceEnd::Paused);
    filesystem.close().unwrap();
}

#[test]
fn a_mount_of_the_kernel_is_balanced_too() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let before = manifest(&image);
    let mount = KernelMount::open(std::slice::from_ref(&image), "noatime");
    let path = mount.path().display().to_string();
    let done = succeed(&format!("balance start -dusage=80 {path}"));
    assert!(done.starts_with("Done, had to relocate "), "{done}");
    assert_eq!(
        succeed(&format!("balance status {path}")),
        format!("No balance found on '{path}'\n")
    );
    for command in ["pause", "cancel", "resume"] {
        let output = larder(format!("balance {command} {path}").split(' '));
        assert_eq!(output.status.code(), Some(2), "{command}");
    }
    drop(mount);
    assert_sound(&image, &before);
}
