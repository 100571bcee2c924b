//! Balances while the file system is in use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_testkit::{KernelMount, oracle};

use crate::support::{Mounted, assert_written, larder, succeed, write_files};

/// A mount with files and a read-only snapshot.
fn mounted() -> Mounted {
    let mounted = Mounted::with_size("2G");
    mounted.shell(
        "mkdir d; for i in $(seq 200); do head -c 300K /dev/urandom > d/$i; done; cp -r d e",
    );
    succeed(larder().args(["cp", "-a"]).arg(mounted.join("d")).arg(mounted.join("f")));
    let mut snapshot = larder();
    snapshot.args(["subvolume", "snapshot", "-r"]).arg(mounted.path()).arg(mounted.join("snap"));
    succeed(&mut snapshot);
    mounted
}

#[test]
fn everything_moves_while_programs_read_write_and_send() {
    let mut mounted = mounted();
    let sums = "cd snap; find -type f -exec sha256sum {} + | sort";
    let before = mounted.shell(sums);
    let folder = mounted.join("e");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&folder, &is_done, 4));
        let reader = scope.spawn(|| {
            while !is_done.load(Relaxed) {
                assert_eq!(
                    mounted.shell("cd d; sha256sum * | sort"),
                    mounted.shell("cd snap/d; sha256sum * | sort")
                );
            }
        });
        let snapshots = scope.spawn(|| {
            for number in 0.. {
                if is_done.load(Relaxed) {
                    break;
                }
                let mut snapshot = larder();
                let (from, to) = (mounted.path(), mounted.join(format!("more{number}")));
                succeed(snapshot.args(["subvolume", "snapshot"]).arg(from).arg(&to));
                succeed(larder().args(["subvolume", "delete"]).arg(&to));
            }
        });
        let sends = scope.spawn(|| {
            while !is_done.load(Relaxed) {
                let (from, to) = (mounted.join("snap"), mounted.folder().join("stream"));
                succeed(larder().args(["send", "-f"]).arg(&to).arg(from));
            }
        });
        for _ in 0..2 {
            let mut balance = larder();
            let done =
                succeed(balance.args(["balance", "start", "--full-balance"]).arg(mounted.path()));
            assert!(done.starts_with("Done, had to relocate "), "{done}");
        }
        is_done.store(true, Relaxed);
        let written = writer.join().unwrap();
        assert_written(&folder, written);
        reader.join().unwrap();
        snapshots.join().unwrap();
        sends.join().unwrap();
    });
    assert_eq!(mounted.shell(sums), before);
    mounted.unmount();
    oracle::check(&[mounted.image()], true).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_balance_pauses_and_goes_on() {
    let mut mounted = mounted();
    let path = mounted.path();
    let status = || {
        let output = larder().args(["balance", "status"]).arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(status(), (Some(0), format!("No balance found on '{}'\n", path.display())));
    // It may end before it pauses.
    loop {
        let mut balance = larder();
        balance.args(["balance", "start", "--full-balance"]).arg(&path);
        let mut balance = balance.spawn().unwrap();
        let mut is_paused = false;
        while balance.try_wait().unwrap().is_none() && !is_paused {
            let pause = larder().args(["balance", "pause"]).arg(&path).output().unwrap();
            is_paused = pause.status.success();
        }
        balance.wait().unwrap();
        if is_paused && status().0 == Some(1) {
            break;
        }
    }
    assert!(status().1.starts_with(&format!("Balance on '{}' is paused\n", path.display())));
    let mut refused = larder();
    let refused = refused.args(["filesystem", "resize", "1500M"]).arg(&path).output().unwrap();
    assert!(!refused.status.success());
    mounted.unmount();
    mounted.mount(&[]);
    let resumed = succeed(larder().args(["balance", "resume"]).arg(&path));
    assert!(resumed.starts_with("Done, had to relocate "), "{resumed}");
    let cancel = larder().args(["balance", "cancel"]).arg(&path).output().unwrap();
    assert_eq!(cancel.status.code(), Some(2));
    mounted.unmount();
    oracle::check(&[mounted.image()], true).unwrap_or_else(|error| panic!("{error}"));
}

/// Of a mount of larder, of the image, and of a mount of the kernel.
#[test]
fn all_say_alike_what_would_move() {
    let plan = |place: &Path| {
        let mut plan = larder();
        plan.args(["--format", "json", "balance", "start", "--dry-run", "-dusage=95"]);
        succeed(plan.arg(place))
    };
    let mut mounted = mounted();
    let of_mount = plan(&mounted.path());
    assert!(of_mount.contains("\"kind\": \"data\""), "{of_mount}");
    let mut refused = larder();
    refused.args(["balance", "start", "--dry-run", "-dconvert=raid1"]).arg(mounted.path());
    let refused = String::from_utf8(refused.output().unwrap().stderr).unwrap();
    assert!(refused.contains("target data profile raid1: there are 1 devices"), "{refused}");
    mounted.unmount();
    assert_eq!(plan(&mounted.image()), of_mount);
    let kernel = KernelMount::open(&[mounted.image()], "ro");
    assert_eq!(plan(kernel.path()), of_mount);
}
