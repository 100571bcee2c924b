//! Scrubs of a mount in use, by larder and by the kernel's ioctls.

use std::fs;
use std::process::Command;

use larder_testkit::damage;

use crate::btrfs_progs::shim;
use crate::support::{Mounted, larder, succeed, wait_until};

const MARK: &[u8] = b"a sector with two copies";
const SECTOR: usize = 4096;

/// A mount with a file, of which one copy of a sector is bad.
fn spoilt() -> Mounted {
    let mut mounted = Mounted::unmounted();
    let image = mounted.image().to_str().unwrap().to_owned();
    fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    succeed(larder().args(["mkfs", "-q", "-d", "dup", "-m", "dup", &image]));
    mounted.mount(&[]);
    let mut content = MARK.to_vec();
    content.resize(4 << 20, b'.');
    fs::write(mounted.join("file"), &content).unwrap();
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    let bytes = fs::read(&image).unwrap();
    let marked = bytes.chunks(SECTOR).position(|sector| sector.starts_with(MARK)).unwrap();
    let at = (marked * SECTOR) as u64;
    damage::invert(mounted.image().as_path(), at..at + 16).unwrap();
    mounted
}

fn output(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_mount_is_scrubbed_while_programs_use_it() {
    let mounted = spoilt();
    let scrub = |words: &str| output(larder().args(words.split(' ')).arg(mounted.path()));
    let (code, text) = scrub("scrub start -B -r");
    assert!(code == 0 && text.contains("csum=1\n  Corrected:      1\n"), "{text}");
    fs::write(mounted.join("more"), vec![7; 1 << 20]).unwrap();
    let (code, text) = scrub("scrub start -B");
    assert!(code == 0 && text.contains("csum=1\n  Corrected:      1\n"), "{text}");
    let (code, text) = scrub("scrub start -B");
    assert!(code == 0 && text.contains("no errors found"), "{text}");
    let (_, stats) = output(larder().args(["device", "stats"]).arg(mounted.path()));
    assert!(stats.contains(".corruption_errs  2"), "{stats}");
    assert_eq!(fs::read(mounted.join("file")).unwrap().len(), 4 << 20);
    mounted.finish();
}

#[test]
fn btrfs_scrubs_a_mount_of_larder() {
    let mounted = spoilt();
    let shim = shim(mounted.folder());
    let btrfs = |words: &str| {
        let mut command = Command::new("btrfs");
        output(command.args(words.split(' ')).arg(mounted.path()).env("LD_PRELOAD", &shim))
    };
    let (code, text) = btrfs("scrub start -B");
    assert!(code == 0 && text.contains("csum=1\n  Corrected:      1\n"), "{text}");
    let (code, text) = btrfs("scrub status");
    assert!(code != 0 || text.contains("Status:           finished\n"), "{text}");
    let (code, text) = btrfs("scrub cancel");
    assert!(code == 2 && text.contains("not running"), "{text}");
    mounted.finish();
}

#[test]
fn a_scrub_is_limited_watched_and_cancelled() {
    let mounted = spoilt();
    let path = mounted.path();
    succeed(larder().args(["scrub", "limit", "-a", "-l", "64K"]).arg(&path));
    let limits = succeed(larder().args(["scrub", "limit"]).arg(&path));
    assert!(limits.contains("64.00KiB"), "{limits}");
    let json = succeed(larder().args(["--format", "json", "scrub", "limit"]).arg(&path));
    assert!(json.contains("\"limit\": 65536"), "{json}");
    let (code, text) = output(larder().args(["scrub", "start"]).arg(&path));
    assert!(code == 0 && text.starts_with("scrub started on "), "{text}");
    wait_until("the health tells it", || {
        let health = succeed(larder().arg("health").arg(&path));
        health.contains("Job:             scrub of device 1: ")
    });
    let status = succeed(larder().args(["scrub", "status"]).arg(&path));
    assert!(status.contains("Status:           running\n"), "{status}");
    let (code, text) = output(larder().args(["scrub", "start", "-B"]).arg(&path));
    assert!(code == 1 && text.contains("Scrub is already running"), "{text}");
    succeed(larder().args(["scrub", "cancel"]).arg(&path));
    wait_until("it is recorded", || {
        let status = succeed(larder().args(["scrub", "status"]).arg(&path));
        status.contains("Status:           aborted\n")
    });
    succeed(larder().args(["scrub", "limit", "-a", "-l", "0"]).arg(&path));
    let (code, text) = output(larder().args(["scrub", "resume", "-B"]).arg(&path));
    assert!(code == 0 && text.starts_with("WARNING") || text.starts_with("scrub done"), "{text}");
    mounted.finish();
}
