//! Devices that go, and get other sizes, while the file system is in use.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::oracle;

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

#[test]
fn devices_change_for_root_only_and_where_they_may() {
    let (mut mounted, second) = mounted();
    let program = env!("CARGO_BIN_EXE_larder");
    let path = mounted.path().display().to_string();
    for command in ["device remove 2", "filesystem resize 2:600M"] {
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
    let added = mounted.shell(&format!(
        "truncate -s 300M /dev/shm/x.$$; ! {program} device add \
        /dev/shm/x.$$ {path} 2>&1; rm /dev/shm/x.$$"
    ));
    assert!(added.contains("cannot add devices yet"), "{added}");
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
