//! Real programs on a mount.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{Mounted, shell, succeed, wait_until};

/// Parts of the system with many files of all sizes, links and directories.
const TREES: &str = "/usr/share/perl /usr/share/doc";
/// The smaller of them.
const TREE: &str = "/usr/share/perl";

#[test]
pub(crate) fn fs_mark() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir d1 d2; fs_mark -S 0 -L 2 -n 3000 -s 0 -t 2 -k -d d1 -d d2 -l /dev/null;
         fs_mark -S 1 -L 1 -n 100 -s 5000 -t 2 -k -d d1 -d d2 -l /dev/null",
    );
    mounted.finish();
}

#[test]
pub(crate) fn dbench() {
    let mounted = Mounted::new();
    mounted.shell("dbench -t 4 -D . 8 | tail -3");
    mounted.finish();
}

#[test]
pub(crate) fn fio_verifies() {
    let mounted = Mounted::new();
    let fio = "fio --output=/dev/null --rw=randrw --verify=crc32c --do_verify=1 --verify_fatal=1 \
               --size=24m --bsrange=1k-64k --numjobs=2 --group_reporting --fallocate=none";
    mounted.shell(&format!("{fio} --name=buffered"));
    mounted.shell(&format!(
        "{fio} --name=direct --direct=1 --bsrange=4k-64k --ioengine=libaio --iodepth=8"
    ));
    mounted.finish();
}

#[test]
pub(crate) fn sqlite() {
    let mounted = Mounted::new();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
                INSERT INTO t SELECT i, hex(randomblob(50)) FROM n;";
    for (file, journal) in [("wal.db", "wal"), ("rollback.db", "delete")] {
        let script = format!(
            "PRAGMA journal_mode={journal}; CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT); {rows} \
             UPDATE t SET v = 'x' WHERE i % 7 = 0; DELETE FROM t WHERE i % 11 = 0; VACUUM; \
             PRAGMA integrity_check;"
        );
        // With the log, an error names the call and the file that it came from.
        let mut sqlite3 = Command::new("sqlite3");
        let said =
            succeed(sqlite3.args(["-cmd", ".log stderr"]).arg(mounted.join(file)).arg(script));
        assert!(said.ends_with("ok\n"), "{said}");
    }
    mounted.finish();
}

#[test]
pub(crate) fn git() {
    let mounted = Mounted::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let clone = format!("git clone -q --no-local -- '{}' clone", project.display());
    mounted.shell(&clone);
    mounted.shell(
        "cd clone; git fsck --full; git checkout -q HEAD~3; git checkout -q -; git gc -q;
         git fsck --full; test -z \"$(git status --porcelain)\"",
    );
    mounted.finish();
}

#[test]
pub(crate) fn rsync_and_tar() {
    let mounted = Mounted::with_size("4G");
    mounted.shell(&format!(
        "rsync -aHAX {TREES} copied/
         for tree in {TREES}; do diff -r --no-dereference $tree copied/${{tree##*/}}; done"
    ));
    mounted.shell("rsync -aHAXc --itemize-changes --delete copied/perl/ again/ > /dev/null");
    let changed =
        mounted.shell(&format!("rsync -aHAXcn --itemize-changes --delete {TREE}/ again/"));
    assert_eq!(changed, "");
    mounted.shell(
        "mkdir un; tar -C copied -cf - . | tar -C un -xf -; diff -r --no-dereference copied un",
    );
    mounted.shell("rm -r copied");
    mounted.finish();
}

#[test]
fn cargo_builds() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir -p hello/src; cd hello;
         printf '[package]\\nname = \"hello\"\\nversion = \"0.1.0\"\\nedition = \"2024\"\\n' > Cargo.toml;
         echo 'fn main() { println!(\"hello from a mount\"); }' > src/main.rs;
         unset CARGO_TARGET_DIR; cargo build --offline -q; ./target/debug/hello | grep -q mount;
         touch src/main.rs; cargo build --offline -q",
    );
    mounted.finish();
}

#[test]
pub(crate) fn stress_ng() {
    let mounted = Mounted::new();
    let stressors = [
        "chmod",
        "chown",
        "copy-file",
        "dentry",
        "dir",
        "dirdeep",
        "dirmany",
        "fallocate",
        "filename",
        "flock",
        "fpunch",
        "fstat",
        "getdent",
        "hdd",
        "link",
        "lockf",
        "mmap",
        "readahead",
        "rename",
        "seek",
        "symlink",
        "utime",
        "xattr",
    ];
    let stressors: String = stressors.map(|stressor| format!(" --{stressor} 1")).concat();
    mounted.shell(&format!("stress-ng --temp-path . --timeout 6s --hdd-bytes 16m{stressors} 2>&1"));
    let left = fs::read_dir(mounted.path()).unwrap().count();
    assert_eq!(left, 0, "it cleans up");
    mounted.finish();
}

#[test]
pub(crate) fn many_at_once() {
    let mounted = Mounted::new();
    let copies: Vec<_> = (0..4)
        .map(|number| {
            let root = mounted.path();
            std::thread::spawn(move || {
                shell(
                    &root,
                    &format!("for i in 1 2 3; do cp -a {TREE} {number}-$i; done; rm -r {number}-2"),
                );
            })
        })
        .collect();
    for copy in copies {
        copy.join().unwrap();
    }
    for number in 0..4 {
        mounted.shell(&format!("diff -r --no-dereference {TREE} {number}-3"));
    }
    mounted.finish();
}

#[test]
pub(crate) fn an_unused_mount_sleeps() {
    let mounted = Mounted::in_foreground();
    mounted.shell("for n in $(seq 2000); do echo $n > $n; done; ls -l > list; rm [0-9]*");
    wait_until("no thread runs", || {
        let switches = mounted.count_switches();
        thread::sleep(Duration::from_millis(100));
        switches > 0 && mounted.count_switches() == switches
    });
    mounted.finish();
}
