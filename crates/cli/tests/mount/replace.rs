//! A device that is replaced while the file system is in use.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::oracle;

use crate::support::{Mounted, assert_written, larder, succeed, write_files};

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
