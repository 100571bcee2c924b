//! Devices that go, and get other sizes, while the file system is in use.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::{KernelMount, LoopDevice, oracle};

use crate::btrfs_progs::shim;
use crate::support::{Mounted, assert_written, larder, shell, succeed, write_files};

const MIB: u64 = 1 << 20;

/// A mount of two images, with files and a snapshot.
fn mounted() -> (Mounted, std::path::PathBuf) {
    let mut mounted = Mounted::with_size("700M");
    mounted
        .shell("mkdir d; for i in $(seq 50); do head -c 300K /dev/urandom > d/$i; done; cp -r d e");
    succeed(larder().args(["subvolume", "snapshot"]).arg(mounted.path()).arg(mounted.join("snap")));
    mounted.unmount();
    let second = mounted.image().with_file_name("second.img");
    let mut add = larder();
    succeed(add.args(["device", "add", "--create", "800M"]).arg(&second).arg(mounted.image()));
    mounted.mount(&[]);
    (mounted, second)
}

#[test]
fn a_device_goes_while_programs_write() {
    let (mut mounted, second) = mounted();
    let before = mounted.shell("cd snap; find -type f -exec sha256sum {} + | sort");
    let folder = mounted.join("e");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&folder, &is_done, 1));
        succeed(larder().args(["device", "remove", "1"]).arg(mounted.path()));
        is_done.store(true, Relaxed);
        let written = writer.join().unwrap();
        assert_written(&folder, written);
    });
    succeed(larder().args(["filesystem", "resize", "2:600M"]).arg(mounted.path()));
    let only = larder().args(["device", "remove", "2"]).arg(mounted.path()).output().unwrap();
    let said = String::from_utf8_lossy(&only.stderr).into_owned();
    assert!(!only.status.success() && said.contains("only device"), "{said}");
    let shown = larder().args(["filesystem", "show"]).arg(mounted.path()).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("Total devices 1") && shown.contains("size 600.00MiB"), "{shown}");
    assert_eq!(mounted.shell("cd snap; find -type f -exec sha256sum {} + | sort"), before);
    mounted.unmount();
    oracle::check(std::slice::from_ref(&second), true).unwrap_or_else(|error| panic!("{error}"));
    assert!(oracle::dump_super(&mounted.image()).is_err(), "its superblocks are gone");
    assert_eq!(fs::metadata(&second).unwrap().len(), 800 * MIB);
}

/// By larder, and by btrfs-progs.
#[test]
fn devices_are_added_while_programs_write() {
    let (mut mounted, second) = mounted();
    let before = mounted.shell("cd snap; find -type f -exec sha256sum {} + | sort");
    let path = mounted.path();
    let third = mounted.folder().join("third.img");
    let fourth = mounted.folder().join("fourth.img");
    File::create(&fourth).unwrap().set_len(500 * MIB).unwrap();
    let attached = LoopDevice::attach(&fourth);
    let shim = shim(mounted.folder());
    let folder = mounted.join("e");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&folder, &is_done, 1));
        let mut add = larder();
        succeed(add.args(["device", "add", "--create", "600M"]).arg(&third).arg(&path));
        let mut add = Command::new("btrfs");
        add.args(["device", "add"]).arg(attached.path()).arg(&path);
        succeed(add.env("LD_PRELOAD", &shim));
        succeed(larder().args(["device", "remove", "1", "2"]).arg(&path));
        is_done.store(true, Relaxed);
        let written = writer.join().unwrap();
        assert_written(&folder, written);
    });
    let shown = succeed(larder().args(["filesystem", "show"]).arg(&path));
    assert!(shown.contains("devid    3 size 600.00MiB"), "{shown}");
    assert!(shown.contains("devid    4 size 500.00MiB"), "{shown}");
    for member in [third.as_path(), attached.path()] {
        let mut add = larder();
        let again = add.args(["device", "add", "-f"]).arg(member).arg(&path).output().unwrap();
        assert!(!again.status.success(), "{}", member.display());
    }
    assert_eq!(mounted.shell("cd snap; find -type f -exec sha256sum {} + | sort"), before);
    mounted.unmount();
    drop(attached);
    oracle::check(&[third.clone(), fourth.clone()], true).unwrap_or_else(|error| panic!("{error}"));
    drop(KernelMount::open(&[third, fourth], "ro"));
    for removed in [mounted.image(), second] {
        assert!(oracle::dump_super(&removed).is_err(), "its superblocks are gone");
    }
}

/// A balance that pauses excludes what it would when it goes on.
#[test]
fn work_waits_for_other_work() {
    let (mut mounted, second) = mounted();
    let path = mounted.path();
    pause_a_balance(&mounted);
    let excluded: [&[&str]; 3] = [
        &["device", "remove", "1"],
        &["filesystem", "resize", "2:790M"],
        &["balance", "start", "-d"],
    ];
    let waiting = excluded.map(|words| {
        let refused = larder().args(words).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("in progress"), "{said}");
        let mut command = larder();
        command.args(&words[..2]).arg("--enqueue").args(&words[2..]).arg(&path);
        command.stdout(Stdio::null()).spawn().unwrap()
    });
    succeed(larder().args(["balance", "cancel"]).arg(&path));
    for mut child in waiting {
        assert!(child.wait().unwrap().success());
    }
    // Of an image, a command waits until nothing else has it open.
    let third = mounted.folder().join("third.img");
    let mut add = larder();
    add.args(["device", "add", "--enqueue", "--create", "300M"]).arg(&third).arg(&second);
    let mut waiting = add.spawn().unwrap();
    let shown = succeed(larder().args(["filesystem", "show"]).arg(&path));
    assert!(shown.contains("Total devices 1") && shown.contains("size 790.00MiB"), "{shown}");
    mounted.unmount();
    assert!(waiting.wait().unwrap().success());
    let mut resize = larder();
    succeed(resize.args(["filesystem", "resize", "--enqueue", "2:500M"]).arg(&second));
    assert_eq!(fs::metadata(&second).unwrap().len(), 500 * MIB);
    oracle::check(&[second, third], true).unwrap_or_else(|error| panic!("{error}"));
}

/// Begins a balance until one pauses before it has ended.
fn pause_a_balance(mounted: &Mounted) {
    let path = mounted.path();
    let is_paused = || {
        let status = larder().args(["balance", "status"]).arg(&path).output().unwrap();
        status.status.code() == Some(1)
    };
    while !is_paused() {
        let mut balance = larder();
        balance.args(["balance", "start", "--full-balance"]).arg(&path);
        let mut balance = balance.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while balance.try_wait().unwrap().is_none() {
            larder().args(["balance", "pause"]).arg(&path).output().unwrap();
        }
    }
}

/// For people who ship images: the file system gets small while it is mounted.
#[test]
fn a_mount_gets_as_small_as_it_can() {
    let mounted = Mounted::with_size("700M");
    mounted.shell("mkdir d; for i in $(seq 300); do head -c 300K /dev/urandom > d/$i; done; sync");
    mounted.shell("rm d/*[1-9]; sync");
    let before = mounted.shell("cd d; sha256sum * | sort");
    succeed(larder().args(["filesystem", "resize", "min"]).arg(mounted.path()));
    assert_eq!(mounted.shell("cd d; sha256sum * | sort"), before);
    let size: u64 = mounted.shell("stat -fc '%b*%S' . | bc").trim().parse().unwrap();
    assert!(size < 60 * MIB, "{size}");
    succeed(larder().args(["filesystem", "resize", "max"]).arg(mounted.path()));
    mounted.shell("head -c 50M /dev/urandom > more; sync");
    mounted.finish();
}

/// What is written while a device is missing gets its second copy when the device is replaced, and
/// what lacks one otherwise, on demand.
#[test]
fn copies_are_completed_on_a_mount() {
    let mut mounted = Mounted::unmounted();
    let second = mounted.folder().join("second.img");
    for image in [&mounted.image(), &second] {
        File::create(image).unwrap().set_len(600 * MIB).unwrap();
    }
    let mut mkfs = larder();
    succeed(
        mkfs.args(["mkfs", "-q", "-d", "raid1", "-m", "raid1"]).arg(mounted.image()).arg(&second),
    );
    // As the kernel leaves it: single block groups beside mirrored ones.
    let images = [mounted.image(), second.clone()];
    let kernel = KernelMount::open(&images[..1], "degraded");
    fs::write(kernel.path().join("degraded"), vec![9; 40 << 20]).unwrap();
    drop(kernel);
    let kernel = KernelMount::open(&images[..1], "degraded");
    let target = mounted.folder().join("target.img");
    File::create(&target).unwrap().set_len(600 * MIB).unwrap();
    let attached = LoopDevice::attach(&target);
    let mut replace = Command::new("btrfs");
    replace.args(["replace", "start", "-B", "2"]).arg(attached.path()).arg(kernel.path());
    succeed(&mut replace);
    drop((kernel, attached));
    fs::remove_file(&second).unwrap();
    mounted.mount(&[]);
    let redundancy = |options: &[&str]| {
        let mut command = larder();
        command.args(["filesystem", "redundancy"]).args(options).arg(mounted.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, shown) = redundancy(&[]);
    assert!(code == Some(1) && shown.contains("should be raid1"), "{shown}");
    assert_eq!(redundancy(&["--complete"]), (Some(0), "Everything has all copies\n".to_owned()));
    mounted.unmount();
    let images = [mounted.image(), target];
    oracle::check(&images, true).unwrap_or_else(|error| panic!("{error}"));
    fs::remove_file(&images[0]).unwrap();
    let kernel = KernelMount::open(&images[1..], "degraded,ro");
    assert!(fs::read(kernel.path().join("degraded")).unwrap() == vec![9; 40 << 20]);
}

#[test]
fn devices_change_for_root_only_and_where_they_may() {
    let (mut mounted, second) = mounted();
    let program = env!("CARGO_BIN_EXE_larder");
    let path = mounted.path().display().to_string();
    let third = mounted.folder().join("third.img");
    File::create(&third).unwrap().set_len(300 * MIB).unwrap();
    fs::set_permissions(&third, fs::Permissions::from_mode(0o666)).unwrap();
    let add = format!("device add -f {}", third.display());
    for command in ["device remove 2", "filesystem resize 2:600M", &add] {
        let refused = mounted.shell(&format!(
            "! setpriv --reuid 65534 --regid 65534 --clear-groups {program} {command} {path} 2>&1"
        ));
        assert!(refused.contains("ermi"), "{refused}");
        let refused = mounted.shell(&format!(
            "! unshare -m sh -c 'mount --bind {path} {path}; mount -o remount,bind,ro {path}; \
             {program} {command} {path}' 2>&1"
        ));
        assert!(refused.contains("Read-only file system"), "{refused}");
    }
    let larger = mounted.shell(&format!("! {program} filesystem resize 2:2G {path} 2>&1"));
    assert!(larger.contains("the device is smaller"), "{larger}");
    mounted.unmount();
    oracle::check(&[mounted.image(), second], true).unwrap_or_else(|error| panic!("{error}"));
}

/// The disk below one mirror is full: it refuses writes, and the mount goes on with the other one.
#[test]
fn a_mirror_that_refuses_writes_is_left_out_and_comes_back() {
    let mut mounted = Mounted::with_size("400M");
    mounted.unmount();
    let folder = mounted.folder().to_owned();
    shell(&folder, "mkdir small; mount -t tmpfs -o size=50M none small");
    let second = folder.join("small/second.img");
    let mut add = larder();
    succeed(add.args(["device", "add", "--create", "400M"]).arg(&second).arg(mounted.image()));
    mounted.mount(&["-o", &format!("device={}", second.display())]);
    let mut convert = larder();
    convert.args(["balance", "start", "-f", "-dconvert=raid1", "-mconvert=raid1"]);
    succeed(convert.arg("-sconvert=raid1").arg(mounted.path()));
    mounted.shell("echo before > synced; sync");
    mounted
        .shell("head -c 60M /dev/urandom > large; echo more > synced; sync; sha256sum large > sum");
    let health = succeed(larder().arg("health").arg(mounted.path()));
    assert!(health.contains("State:           well"), "{health}");
    assert!(health.contains("device 2 missed commits"), "{health}");
    let redundancy = |arguments: &[&str]| {
        let mut command = larder();
        command.args(["filesystem", "redundancy"]).args(arguments).arg(mounted.path());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_whole, said) = redundancy(&["--complete"]);
    assert!(!is_whole && said.contains("Device 2 missed commits"), "{said}");
    shell(&folder, "mount -o remount,size=500M small");
    let (is_whole, said) = redundancy(&["--complete"]);
    assert!(is_whole && said == "Everything has all copies\n", "{said}");
    mounted.shell("echo last > synced");
    mounted.unmount();
    let both = [mounted.image(), second.clone()];
    oracle::check(&both, true).unwrap_or_else(|error| panic!("{error}"));
    // The second one has everything, alone.
    let alone = larder().args(["tar", "--degraded"]).arg(&second).output().unwrap();
    assert!(alone.status.success(), "{alone:?}");
    fs::write(folder.join("alone.tar"), alone.stdout).unwrap();
    let found =
        "mkdir alone; tar -xf alone.tar -C alone; cd alone; sha256sum --quiet -c sum; cat synced";
    assert_eq!(shell(&folder, found), "last\n");
    shell(&folder, "umount small");
}
