//! File systems on several devices, and the messages of commands about them.

use std::ffi::OsStr;
use std::path::Path;

use larder_testkit::{LoopDevice, Scratch};

use crate::support::larder;

/// The standard error of a command that must succeed.
#[track_caller]
fn said<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = larder(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

fn word(path: &Path) -> &str {
    path.to_str().expect("paths here are text")
}

#[test]
fn a_device_that_returns_is_named() {
    let scratch = Scratch::new();
    let devices = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
    let [first, second] = devices.each_ref().map(|device| word(device));
    said(["mkfs", "-d", "raid1", "-m", "raid1", first, second]);
    let away = scratch.path().join("away");
    std::fs::create_dir(&away).expect("it is made");
    let away = away.join("away");
    std::fs::rename(second, &away).expect("it is moved");
    let missing = said(["mkdir", "--degraded", &format!("{first}:/one")]);
    std::fs::rename(&away, second).expect("it is moved back");
    assert!(missing.contains("WARNING: device 2") && missing.contains("is missing"), "{missing}");
    let other = format!("--device={second}");
    let back = said(["mkdir", &other, &format!("{first}:/two")]);
    let expected = format!("device 2 ({second}) now gets the commits that it missed");
    assert!(back.contains(&expected), "{back}");
    assert_eq!(said(["mkdir", &other, &format!("{first}:/three")]), "");
    std::fs::rename(first, &away).expect("it is moved");
    let alone = said(["ls", "--degraded", &format!("{second}:/three")]);
    assert!(!alone.contains("missed"), "{alone}");
}

/// Devices may be missing, but what is there is used.
#[test]
fn degraded_leaves_out_no_device() {
    let scratch = Scratch::new();
    let devices = ["first", "second", "third"].map(|name| scratch.sparse_file(name, 256 << 20));
    let [first, second, third] = devices.each_ref().map(|device| word(device));
    said(["mkfs", "-d", "raid1", "-m", "raid1c3", first, second, third]);
    let generations = || {
        let of = |device: &str| {
            let shown = larder(["inspect", "dump-super", device]).stdout;
            let shown = String::from_utf8_lossy(&shown).into_owned();
            let line = shown.lines().find(|line| line.starts_with("generation"));
            line.expect("it is shown").to_owned()
        };
        [of(first), of(second), of(third)]
    };
    assert_eq!(said(["mkdir", "--degraded", &format!("{first}:/one")]), "");
    let [a, b, c] = generations();
    assert!(a == b && b == c, "{a} {b} {c}");
    // Two of three are there, and named by one of them.
    std::fs::remove_file(third).expect("it is removed");
    let missing = said(["mkdir", "--degraded", &format!("{second}:/two")]);
    assert!(missing.contains("device 3") && !missing.contains("device 1"), "{missing}");
    // That one is missing is a finding, and the only one.
    let checked = larder(["check", "--degraded", first]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("1 finding"), "{checked:?}");
    let refused = larder(["check", first]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("device 3") && refused.contains("--degraded"), "{refused}");
}

/// Where no option helps, none is advised.
#[test]
fn without_too_many_devices_degraded_is_not_advised() {
    let scratch = Scratch::new();
    for metadata in ["raid0", "raid1"] {
        let devices = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
        let [first, second] = devices.each_ref().map(|device| word(device));
        said(["mkfs", "-f", "-d", "raid0", "-m", metadata, first, second]);
        std::fs::remove_file(second).expect("it is removed");
        for arguments in [&["check", first][..], &["check", "--degraded", first]] {
            let refused = larder(arguments);
            let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(refused.contains("device 2") && !refused.contains("-o degraded"), "{refused}");
        }
    }
}

#[test]
fn devices_beside_an_image_are_found() {
    let scratch = Scratch::new();
    let devices = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
    let [first, second] = devices.each_ref().map(|device| word(device));
    said(["mkfs", "-d", "raid1", "-m", "raid1", first, second]);
    said(["mkdir", &format!("{first}:/directory")]);
    said(["check", second]);
    let refused = |arguments: &[&str]| {
        let output = larder(arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Another file system beside them changes nothing, a copy does.
    let other = scratch.sparse_file("other", 256 << 20);
    said(["mkfs", word(&other)]);
    said(["mkdir", &format!("{second}:/other")]);
    let copy = scratch.path().join("copy");
    std::fs::copy(second, &copy).expect("it is copied");
    let ambiguous = refused(&["ls", &format!("{first}:/")]);
    let expected = format!("{}, {second} are all device 2 of it: name one", word(&copy));
    assert!(ambiguous.contains(&expected), "{ambiguous}");
    said(["ls", &format!("--device={second}"), &format!("{first}:/")]);
    std::fs::remove_file(second).expect("it is there");
    std::fs::remove_file(copy).expect("it is there");
    let missing = refused(&["mkdir", &format!("{first}:/missing")]);
    assert!(missing.contains("missing"), "{missing}");
}

#[test]
fn file_systems_are_found_by_uuid_and_label() {
    const UUID: &str = "7d5b4cf3-6d1d-4b8e-9f7e-1c3a2b5d6e7f";
    let scratch = Scratch::new();
    let files = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
    let [first, second] = files.each_ref().map(|file| word(file));
    said([
        "mkfs",
        "-U",
        UUID,
        "-L",
        "label of a test",
        "-d",
        "raid1",
        "-m",
        "raid1",
        first,
        second,
    ]);
    let by_uuid = format!("UUID={UUID}:/");
    let unknown = larder(["ls", &by_uuid]);
    let unknown = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.contains(&format!("UUID={UUID}: no block device")), "{unknown}");
    let _devices = files.each_ref().map(|file| LoopDevice::attach(file));
    said(["mkdir", &format!("{by_uuid}directory")]);
    let listed = larder(["ls", "LABEL=label of a test:/"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "directory\n");
    said(["check", &format!("UUID={UUID}")]);
    said(["inspect", "dump-super", &format!("UUID={UUID}")]);
    let wrong = larder(["ls", "UUID=7d5b:/"]);
    let wrong = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.contains("'7d5b' is not a uuid"), "{wrong}");
}

#[test]
fn an_operand_given_twice_is_refused() {
    let scratch = Scratch::new();
    let device = scratch.sparse_file("device", 256 << 20);
    said(["mkfs", word(&device)]);
    let copy = scratch.path().join("copy");
    std::fs::copy(&device, &copy).expect("it is copied");
    let ls = |other: &Path| {
        let other = format!("--device={}", word(other));
        let refused = larder(["ls", &other, &format!("{}:/", word(&device))]);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let twice = ls(&device);
    assert!(twice.contains(&format!("{} is given twice", word(&device))), "{twice}");
    let both = ls(&copy);
    assert!(both.contains("both are device 1: give one of them"), "{both}");
}

/// Mounts with the kernel by one of the devices; whether it could.
fn kernel_mounts(device: &Path, folder: &Path) -> bool {
    let run = |program: &str, arguments: &[&Path]| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).output().expect("it starts").status.success()
    };
    let mounted = run("mount", &[Path::new("-tbtrfs"), device, folder]);
    if mounted {
        assert!(run("umount", &[folder]));
    }
    mounted
}

#[test]
fn the_kernel_knows_devices_by_mkfs_and_by_scanning() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("mountpoint");
    std::fs::create_dir(&folder).expect("it is made");
    let files = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
    let devices = files.each_ref().map(|file| LoopDevice::attach(file));
    let [first, second] = devices.each_ref().map(|device| word(device.path()));
    let code = |arguments: &[&str]| larder(arguments).status.code();
    said(["mkfs", "-q", "-d", "raid1", "-m", "raid1", first, second]);
    assert!(kernel_mounts(Path::new(first), &folder), "mkfs told the kernel of both");
    said(["device", "scan", "--forget", first, second]);
    // It knows the one that it is asked about, and not the other.
    assert_eq!(code(&["device", "ready", first]), Some(1));
    assert!(!kernel_mounts(Path::new(first), &folder));
    let scanned = larder(["device", "scan", second]);
    let expected = format!("Scanning for btrfs filesystems on '{second}'\n");
    assert_eq!(String::from_utf8_lossy(&scanned.stdout), expected);
    assert_eq!(code(&["device", "ready", first]), Some(0));
    assert!(kernel_mounts(Path::new(second), &folder));
    said(["device", "scan", "-u", first, second]);
    let all = larder(["device", "scan"]);
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    let (heading, list) = all.split_once('\n').expect("there are lines");
    assert_eq!(heading, "Scanning for Btrfs filesystems");
    for device in [first, second] {
        assert!(list.lines().any(|line| line == format!("registered: {device}")), "{all}");
    }
    assert!(kernel_mounts(Path::new(first), &folder));
    for arguments in [&["device", "scan", "/dev/null"][..], &["device", "ready", "/dev/null"]] {
        let refused = larder(arguments);
        assert_eq!(refused.status.code(), Some(1));
        let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused, "ERROR: not a block device: /dev/null\n");
    }
}

/// A file system that was grown from a seed on `seed`, with a file in each part.
fn grow(scratch: &Scratch, seed: &Path, sprout: &Path) {
    let run = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    };
    said(["mkfs", "-q", word(seed)]);
    let base = scratch.path().join("base");
    std::fs::write(&base, vec![7; 1 << 20]).expect("it is written");
    said(["cp", word(&base), &format!("{}:/base", word(seed))]);
    run("btrfstune", &["-f", "-S", "1", word(seed)]);
    let folder = scratch.path().join("mounted");
    std::fs::create_dir_all(&folder).expect("it is made");
    let devices = [seed, sprout].map(LoopDevice::attach);
    let folder = word(&folder);
    run("mount", &["-o", "ro", word(devices[0].path()), folder]);
    run("btrfs", &["device", "add", "-f", word(devices[1].path()), folder]);
    run("mount", &["-o", "remount,rw", folder]);
    run("cp", &[word(&base), &format!("{folder}/own")]);
    run("umount", &[folder]);
}

#[test]
fn the_seeds_of_a_file_system_are_found() {
    let scratch = Scratch::new();
    let files = ["seed", "sprout"].map(|name| scratch.sparse_file(name, 400 << 20));
    let [seed, sprout] = files.each_ref().map(std::path::PathBuf::as_path);
    grow(&scratch, seed, sprout);
    // Another seed beside it is none of its own.
    let other = scratch.sparse_file("other", 400 << 20);
    said(["mkfs", "-q", word(&other)]);
    let mut tune = std::process::Command::new("btrfstune");
    let tuned = tune.args(["-f", "-S", "1"]).arg(&other).status();
    assert!(tuned.expect("it starts").success());
    let listed = |place: &str| {
        let output = larder(["ls", &format!("{place}:/")]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(listed(word(sprout)), "base\nown\n");
    said(["mkdir", &format!("{}:/new", word(sprout))]);
    said(["check", "--check-data-csum", word(sprout)]);
    // Only its own device has space to give.
    let usage = larder(["filesystem", "usage", "-b", word(sprout)]);
    let usage = String::from_utf8_lossy(&usage.stdout).into_owned();
    let line = |name: &str| {
        let line = usage.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {usage}"));
        line.split_whitespace().last().and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!(line("Device size:"), 400 << 20);
    assert!(line("Device unallocated:") < 400 << 20);
    let devices = files.each_ref().map(|file| LoopDevice::attach(file));
    assert_eq!(listed(word(devices[1].path())), "base\nnew\nown\n");
    // The seed alone is what it was.
    assert_eq!(listed(word(devices[0].path())), "base\n");
}
