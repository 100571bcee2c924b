//! Devices that are replaced, of images and of what the kernel has mounted.

use std::fs;
use std::path::Path;

use larder_testkit::command::run;
use larder_testkit::{KernelMount, LoopDevice, Scratch, oracle};

use crate::support::{fail, larder, succeed};

const MIB: u64 = 1 << 20;

/// A mirror of two images with a file.
fn mirror(scratch: &Scratch) -> [String; 2] {
    let images = ["a", "b"].map(|name| scratch.sparse_file(name, 512 * MIB));
    let [a, b] = images.map(|image| image.display().to_string());
    succeed(&format!("mkfs -q -d raid1 -m raid1 {a} {b}"));
    fs::write(scratch.path().join("file"), vec![7; 20 << 20]).unwrap();
    succeed(&format!("cp {} {a}:/file", scratch.path().join("file").display()));
    [a, b]
}

fn assert_sound(images: &[&str]) {
    let images: Vec<_> = images.iter().map(Into::into).collect();
    oracle::check(&images, true).unwrap_or_else(|error| panic!("{error}"));
    let mount = KernelMount::open(&images, "ro");
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), vec![7; 20 << 20]);
}

#[test]
fn a_device_is_replaced() {
    let scratch = Scratch::new();
    let [a, b] = mirror(&scratch);
    assert_eq!(succeed(&format!("replace status {a}")), "Never started\n");
    let new = scratch.path().join("new").display().to_string();
    let missing = fail(&format!("replace start {a} {new} {b}"));
    assert!(missing.contains("new"), "{missing}");
    let member = fail(&format!("replace start 1 {b} {a}"));
    assert!(member.contains("is a device of this file system"), "{member}");
    let unknown = fail(&format!("replace start 7 {new} {a}"));
    assert!(unknown.contains("7: no device of this file system"), "{unknown}");
    assert_eq!(succeed(&format!("replace start {a} {new} --create 600M {b}")), "");
    assert!(oracle::dump_super(Path::new(&a)).is_err(), "its superblocks are gone");
    assert_sound(&[&new, &b]);
    let status = succeed(&format!("replace status -1 {new}"));
    assert!(status.starts_with("Started on ") && status.contains(", finished on "), "{status}");
    assert!(status.ends_with(", 0 write errs, 0 uncorr. read errs\n"), "{status}");
    let json = succeed(&format!("--format json replace status {new}"));
    assert!(json.contains("\"state\": \"finished\""), "{json}");
    // Onto a smaller one, which is large enough.
    fs::remove_file(&a).unwrap();
    succeed(&format!("replace start -r 1 {a} --create 300M -f {b}"));
    assert_sound(&[&a, &b]);
    let shown = succeed(&format!("filesystem show {a}"));
    assert!(shown.contains("devid    1 size 300.00MiB"), "{shown}");
    let small = scratch.path().join("small").display().to_string();
    let refused = fail(&format!("replace start 1 {small} --create 40M {b}"));
    assert!(refused.contains("No space left on device"), "{refused}");
    assert!(!Path::new(&small).exists(), "it was made for nothing");
    assert_sound(&[&a, &b]);
    let none = larder(["replace", "cancel", &a]);
    assert_eq!(none.status.code(), Some(2));
    let none = fail(&format!("replace resume {a}"));
    assert!(none.contains("no replace is unfinished"), "{none}");
}

#[test]
fn a_device_that_is_missing_is_replaced() {
    let scratch = Scratch::new();
    let [a, b] = mirror(&scratch);
    fs::remove_file(&a).unwrap();
    let new = scratch.path().join("new").display().to_string();
    succeed(&format!("replace start --degraded missing {new} --create 512M {b}"));
    assert_sound(&[&new, &b]);
    fs::remove_file(&b).unwrap();
    succeed(&format!("replace start --degraded 2 {b} --create 512M {new}"));
    assert_sound(&[&new, &b]);
}

#[test]
fn the_kernel_replaces_devices_of_its_mounts() {
    let scratch = Scratch::new();
    let [a, b] = mirror(&scratch);
    let mount = KernelMount::open(&[(&a).into(), (&b).into()], "");
    let path = mount.path().display();
    assert_eq!(succeed(&format!("replace status {path}")), "Never started\n");
    let new = LoopDevice::attach(&scratch.sparse_file("new", 400 * MIB));
    let device = new.path().display();
    // The kernel takes only targets that are as large.
    succeed(&format!("replace start -B 1 {device} {path}"));
    let status = succeed(&format!("replace status {path}"));
    assert_eq!(status, run("btrfs", ["replace", "status", "-1", &path.to_string()]).unwrap());
    assert!(status.contains(", finished on "), "{status}");
    let shown = run("btrfs", ["filesystem", "show", &path.to_string()]).unwrap();
    assert!(shown.contains("devid    1 size 400.00MiB"), "{shown}");
    assert_eq!(larder(["replace", "cancel", &path.to_string()]).status.code(), Some(2));
    // In the background.
    let back = LoopDevice::attach(&scratch.sparse_file("back", 400 * MIB));
    succeed(&format!("replace start 1 {} {path}", back.path().display()));
    while !succeed(&format!("replace status -1 {path}")).contains(", finished on ") {
        std::thread::yield_now();
    }
    let shown = run("btrfs", ["filesystem", "show", &path.to_string()]).unwrap();
    assert!(shown.contains(&back.path().display().to_string()), "{shown}");
}

/// What the kernel writes while a device is missing has one copy.
#[test]
fn what_lacks_copies_is_shown_and_completed() {
    let scratch = Scratch::new();
    let [a, b] = mirror(&scratch);
    let mount = KernelMount::open(&[(&b).into()], "degraded");
    fs::write(mount.path().join("degraded"), vec![9; 60 << 20]).unwrap();
    drop(mount);
    // As if the device had been replaced by the kernel, which leaves them so.
    let mount = KernelMount::open(&[(&b).into()], "degraded");
    let target = LoopDevice::attach(&scratch.sparse_file("target", 512 * MIB));
    let path = mount.path().display().to_string();
    run("btrfs", ["replace", "start", "-B", "1", &target.path().display().to_string(), &path])
        .unwrap();
    let shown = fail_with(&format!("filesystem redundancy {path}"));
    assert!(shown.contains("Data, single: used=60.00MiB, should be raid1"), "{shown}");
    let refused = fail(&format!("filesystem redundancy --complete {path}"));
    assert!(refused.contains("balance start -dconvert=raid1,soft"), "{refused}");
    drop((mount, target));
    fs::remove_file(&a).unwrap();
    let target = scratch.path().join("target").display().to_string();
    let json = fail_with(&format!("--format json filesystem redundancy {b}"));
    assert!(json.contains("\"wanted\": \"raid1\""), "{json}");
    let warned = larder(["filesystem", "label", &b, "lacking"]);
    let warned = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(warned.contains("have fewer copies than they should"), "{warned}");
    let health = succeed(&format!("health {b}"));
    assert!(health.contains("Copies:          Data, single: should be raid1"), "{health}");
    let checked = larder(["check", &b]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.contains("'larder filesystem redundancy'"), "{said}");
    let done = succeed(&format!("filesystem redundancy --complete {b}"));
    assert_eq!(done, "Everything has all copies\n");
    assert_sound(&[&b, &target]);
    fs::remove_file(&b).unwrap();
    let mount = KernelMount::open(&[target.into()], "degraded,ro");
    assert!(fs::read(mount.path().join("degraded")).unwrap() == vec![9; 60 << 20]);
}

/// The output of a command line that fails.
fn fail_with(line: &str) -> String {
    let output = larder(line.split(' '));
    assert_eq!(output.status.code(), Some(1), "{line}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
