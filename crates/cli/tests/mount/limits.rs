//! Limits of quota groups on a mount: the call that would exceed one fails or, with a write cache
//! in the kernel, the fsync or close.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use larder_testkit::KernelMount;
use rustix::fs::{FallocateFlags, OFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::support::{Mounted, larder, shell, succeed};

const LIMIT: u64 = 20 << 20;

/// A mount whose subvolume `s` may have 20 MiB.
fn limited() -> Mounted {
    let mut mounted = Mounted::with_size("1G");
    mounted.unmount();
    by_kernel(
        &mounted,
        "btrfs quota enable .; btrfs subvolume create s; btrfs qgroup limit 20M s; btrfs quota rescan -w .",
    );
    mounted.mount(&[]);
    mounted
}

fn by_kernel(mounted: &Mounted, line: &str) -> String {
    let kernel = KernelMount::open(&[mounted.image()], "");
    shell(kernel.path(), line)
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn exceeding_a_limit_is_reported() {
    let mut mounted = limited();
    let subvolume = mounted.join("s");
    let room = statvfs(&subvolume).unwrap().f_blocks;
    // Cached data is refused at fsync, and nothing that was synced is lost.
    let mut file = File::create_new(subvolume.join("f")).unwrap();
    let mut fill = || -> io::Result<()> {
        for _ in 0..30 {
            file.write_all(&vec![3; 1 << 20])?;
        }
        file.sync_all()
    };
    assert_eq!(errno(fill()), Some(Errno::DQUOT));
    drop(file);
    // Or at close, which programs check.
    let closed = mounted.shell("! dd if=/dev/zero of=s/g bs=1M count=30 2>&1");
    assert!(closed.contains("Disk quota exceeded") || closed.contains("Input/output error"));
    mounted.shell("rm s/f s/g");
    // And otherwise at once.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(OFlags::DSYNC.bits() as i32);
    let mut file = options.open(subvolume.join("f")).unwrap();
    let mut written_bytes = 0;
    let refusal = loop {
        match file.write_all(&vec![4; 64 << 10]) {
            Ok(()) => written_bytes += 64 << 10,
            refusal => break refusal,
        }
    };
    assert_eq!(errno(refusal), Some(Errno::DQUOT));
    assert!((LIMIT - (1 << 20)..LIMIT).contains(&written_bytes), "{written_bytes}");
    drop(file);
    let file = File::options().write(true).open(subvolume.join("f")).unwrap();
    let allocated = fallocate(&file, FallocateFlags::KEEP_SIZE, 32 << 20, 1 << 20);
    assert_eq!(allocated, Err(Errno::DQUOT));
    assert_eq!(errno(File::create_new(subvolume.join("more"))), Some(Errno::DQUOT));
    assert_eq!(errno(fs::create_dir(subvolume.join("d"))), Some(Errno::DQUOT));
    assert_eq!(errno(fs::rename(subvolume.join("f"), subvolume.join("e"))), Some(Errno::DQUOT));
    // Other subvolumes have space, and as much as before according to statfs(2).
    fs::write(mounted.join("f"), vec![5; 1 << 20]).unwrap();
    assert_eq!(statvfs(&subvolume).unwrap().f_blocks, room);
    drop(file);
    mounted.shell("rm s/f; dd if=/dev/urandom of=s/f bs=1M count=15 conv=fsync");
    mounted.unmount();
    mounted.check();
    let shown =
        by_kernel(&mounted, "btrfs quota rescan -w . >/dev/null; btrfs qgroup show --raw .");
    let count = shown.lines().find(|line| line.starts_with("0/256")).unwrap();
    let referenced_bytes: u64 = count.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((15 << 20..LIMIT).contains(&referenced_bytes), "{shown}");
    mounted.mount(&[]);
    mounted.finish();
}

/// A snapshot is no way around a limit, in the kernel either.
#[test]
fn a_snapshot_has_the_limit_of_its_source() {
    let mut mounted = limited();
    let snapshot = [mounted.join("s"), mounted.join("ours")];
    succeed(larder().args(["subvolume", "snapshot"]).args(snapshot));
    let refused = mounted.shell("! dd if=/dev/zero of=ours/f bs=1M count=30 conv=fsync 2>&1");
    assert!(refused.contains("Disk quota exceeded"), "{refused}");
    mounted.unmount();
    mounted.check();
    let line = "btrfs -q subvolume snapshot s theirs; btrfs qgroup show -r --raw .";
    let shown = by_kernel(&mounted, line);
    let limit = LIMIT.to_string();
    for group in ["0/256", "0/257", "0/258"] {
        let line = shown.lines().find(|line| line.starts_with(group)).expect("it is there");
        assert_eq!(line.split_whitespace().nth(3), Some(&*limit), "{shown}");
    }
}

#[test]
fn a_command_names_the_limit() {
    let mut mounted = limited();
    mounted.unmount();
    let source = mounted.folder().join("large");
    fs::write(&source, vec![6; 30 << 20]).unwrap();
    let target = format!("{}:/s/", mounted.image().display());
    let copied = larder().arg("cp").arg(&source).arg(target).output().unwrap();
    let text = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(!copied.status.success());
    assert!(text.contains("subvolume 256") && text.contains("20971520 bytes"), "{text}");
    let shown = succeed(
        larder().args(["subvolume", "show"]).arg(format!("{}:/s", mounted.image().display())),
    );
    assert!(shown.contains("Limit referenced:\t20.00MiB"), "{shown}");
    mounted.check();
}
