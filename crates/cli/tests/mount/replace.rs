//! A device that is replaced while the file system is in use.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::{KernelMount, oracle};

use crate::support::{Mounted, assert_written, larder, shell, succeed, write_files};

const MIB: u64 = 1 << 20;

#[test]
fn a_device_is_replaced_while_programs_write() {
    let mut mounted = Mounted::with_size("700M");
    mounted.shell("mkdir d; for i in $(seq 50); do head -c 300K /dev/urandom > d/$i; done");
    let before = mounted.shell("cd d; find -type f -exec sha256sum {} + | sort");
    let target = mounted.image().with_file_name("target.img");
    File::create(&target).unwrap().set_len(800 * MIB).unwrap();
    let replace = |arguments: &[&str]| {
        let mut command = larder();
        command.arg("replace").args(arguments);
        command
    };
    let never = replace(&["status"]).arg(mounted.path()).output().unwrap();
    assert_eq!(never.stdout, b"Never started\n");
    let none = replace(&["cancel"]).arg(mounted.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    let folder = mounted.path();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&folder, &is_done, 1));
        succeed(replace(&["start", "-B", "1"]).arg(&target).arg(mounted.path()));
        is_done.store(true, Relaxed);
        let written = writer.join().unwrap();
        assert_written(&folder, written);
    });
    let status = replace(&["status", "-1"]).arg(mounted.path()).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains(", finished on "), "{status}");
    assert_eq!(mounted.shell("cd d; find -type f -exec sha256sum {} + | sort"), before);
    // A user without CAP_SYS_ADMIN gets an error.
    let program = env!("CARGO_BIN_EXE_larder");
    let path = mounted.path().display().to_string();
    let refused = mounted.shell(&format!(
        "! setpriv --reuid 65534 --regid 65534 --clear-groups {program} replace cancel {path} 2>&1"
    ));
    assert!(refused.contains("ermi"), "{refused}");
    mounted.unmount();
    oracle::check(std::slice::from_ref(&target), true).unwrap_or_else(|error| panic!("{error}"));
    assert!(oracle::dump_super(&mounted.image()).is_err(), "its superblocks are gone");
}

/// What a file without checksums holds, again and again.
const MARK: &[u8; 16] = b"one of sixteen..";

/// A mirror of two images with files, one of which has no checksums, mounted anew so that nothing is
/// in memory. Returns the second image.
fn mirror() -> (Mounted, PathBuf) {
    let mut mounted = Mounted::unmounted();
    let second = mounted.folder().join("second.img");
    for image in [&mounted.image(), &second] {
        File::create(image).unwrap().set_len(600 * MIB).unwrap();
    }
    let mut mkfs = larder();
    mkfs.args(["mkfs", "-q", "-d", "raid1", "-m", "raid1"]).arg(mounted.image()).arg(&second);
    succeed(&mut mkfs);
    mounted.mount(&[]);
    mounted.shell("head -c 40M /dev/urandom > sums; touch none; chattr +C none");
    fs::write(mounted.join("none"), MARK.repeat(1 << 16)).unwrap();
    mounted.unmount();
    (mounted, second)
}

/// Mounts a mirror, damages its second device, and replaces that. What the target has without the
/// first device is right.
fn replace_second(options: &[&str], damage: impl FnOnce(&Path)) {
    let (mut mounted, second) = mirror();
    mounted.mount(&[]);
    damage(&second);
    let target = mounted.folder().join("target.img");
    File::create(&target).unwrap().set_len(700 * MIB).unwrap();
    let mut replace = larder();
    replace.args(["replace", "start", "-B"]).args(options).arg("2").arg(&target);
    succeed(replace.arg(mounted.path()));
    let status = larder().args(["replace", "status", "-1"]).arg(mounted.path()).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.ends_with(", 0 write errs, 0 uncorr. read errs\n"), "{status}");
    let sums = mounted.shell("sha256sum sums");
    mounted.unmount();
    let both = [mounted.image(), target.clone()];
    oracle::check(&both, true).unwrap_or_else(|error| panic!("{error}"));
    fs::remove_file(&both[0]).unwrap();
    let kernel = KernelMount::open(&[target], "degraded,ro");
    assert_eq!(shell(kernel.path(), "sha256sum sums"), sums, "{options:?}");
    let none = fs::read(kernel.path().join("none")).unwrap();
    assert!(options.is_empty() || none == MARK.repeat(1 << 16), "{options:?}");
}

/// A device has lost what it had: reads fail, or give zeros. Without checksums nothing tells which
/// copy is right, unless the device is not to be read.
#[test]
fn a_failing_device_is_replaced_on_a_mount() {
    for options in [&[][..], &["-r"]] {
        replace_second(options, |second| {
            File::options().write(true).open(second).unwrap().set_len(2 * MIB).unwrap();
        });
    }
}

/// What has no checksums comes from the other one.
#[test]
fn a_device_is_not_read_where_another_one_has_it() {
    replace_second(&["-r"], |second| assert!(overwrite_marks(second) >= 1 << 16));
}

/// Overwrites what a file without checksums has on a device. Returns how often it was there.
fn overwrite_marks(device: &Path) -> usize {
    let mut data = fs::read(device).unwrap();
    let mut count = 0;
    for place in data.chunks_exact_mut(MARK.len()).filter(|place| place == MARK) {
        place.fill(b'x');
        count += 1;
    }
    File::options().write(true).open(device).unwrap().write_all_at(&data, 0).unwrap();
    count
}
