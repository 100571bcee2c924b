//! Immutable files, append-only files and those in read-only subvolumes are refused when they are
//! opened, to every program, and no program sees refused changes. Programs that had them open
//! before go on. All of it is compared with the kernel's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use larder_testkit::{ImageSpec, KernelImage};
use rustix::fs::{FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::support::{Mounted, assert_same_lines, larder, python, shell, succeed};

/// The result of each call, by its name.
type Outcomes = Vec<(String, Option<Errno>)>;

/// Records the results of calls.
#[derive(Default)]
struct Outcome(Outcomes);

impl Outcome {
    fn of<T, E: Into<io::Error>>(&mut self, call: &str, result: Result<T, E>) {
        let errno = result.err().and_then(|error| Errno::from_io_error(&error.into()));
        self.0.push((call.to_owned(), errno));
    }

    /// Calls that open, or change a file by its path.
    fn of_paths(&mut self, path: &Path) {
        let flags = [
            OFlags::RDONLY,
            OFlags::WRONLY,
            OFlags::RDWR,
            OFlags::WRONLY | OFlags::APPEND,
            OFlags::RDWR | OFlags::APPEND,
            OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC,
            OFlags::RDONLY | OFlags::TRUNC,
            OFlags::RDONLY | OFlags::CREATE,
            OFlags::RDWR | OFlags::CREATE,
        ];
        for flags in flags {
            let opened = rustix::fs::open(path, flags, Mode::from(0o644));
            self.of(&format!("open {flags:?}"), opened);
        }
        let truncate = |len: &str| {
            // truncate(1) opens first.
            let line = format!("truncate(\"{}\", {len})", path.display());
            let perl = Command::new("perl").args(["-e", &format!("{line} or exit $!")]).status();
            match perl.unwrap().code() {
                Some(0) => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno.unwrap())),
            }
        };
        self.of("truncate down", truncate("10"));
        self.of("truncate up", truncate("1000000"));
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let then = Timespec { tv_sec: 1, tv_nsec: 0 };
        for (name, time) in [("now", now), ("then", then)] {
            let times = Timestamps { last_access: time, last_modification: time };
            let touched = rustix::fs::utimensat(rustix::fs::CWD, path, &times, no_flags());
            self.of(&format!("touch {name}"), touched);
        }
        self.of("chmod", rustix::fs::chmod(path, Mode::from(0o600)));
        self.of(
            "setxattr",
            rustix::fs::setxattr(path, "user.a", b"1", rustix::fs::XattrFlags::empty()),
        );
        self.of("link", fs::hard_link(path, path.with_extension("link")));
    }

    /// Calls that change a file that was open before.
    fn of_writer(&mut self, file: &File, append: &mut File) {
        self.of("write", file.write_all_at(b"written", 1));
        self.of("write behind the end", file.write_all_at(b"behind", 20_000));
        self.of("append", append.write_all(b"appended"));
        self.of("fsync", file.sync_all());
    }
}

fn no_flags() -> rustix::fs::AtFlags {
    rustix::fs::AtFlags::empty()
}

/// A file of 5000 bytes, and two programs that have it open.
fn prepared(path: &Path) -> (File, File) {
    fs::write(path, [7; 5000]).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    (file, OpenOptions::new().append(true).open(path).unwrap())
}

/// The results of all calls on files that are protected in each way in `folder`, and the files
/// afterwards.
fn history(folder: &Path, set_read_only: impl Fn(&Path)) -> (Outcomes, Vec<Vec<u8>>) {
    let (mut outcome, mut left) = (Outcome::default(), Vec::new());
    for flag in ["i", "a"] {
        let path = folder.join(flag);
        let (file, mut append) = prepared(&path);
        shell(folder, &format!("chattr +{flag} {flag}"));
        outcome.of_paths(&path);
        outcome.of_writer(&file, &mut append);
        for mode in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE]
        {
            let allocated = rustix::fs::fallocate(&file, mode, 0, 30_000);
            outcome.of(&format!("fallocate {mode:?}"), allocated);
        }
        outcome.of("ftruncate", file.set_len(4000));
        outcome.of("unlink", fs::remove_file(&path));
        left.push(fs::read(&path).unwrap());
        shell(folder, &format!("chattr -{flag} {flag}"));
    }
    let subvolume = folder.join("s");
    let (file, mut append) = prepared(&subvolume.join("f"));
    set_read_only(&subvolume);
    outcome.of_paths(&subvolume.join("f"));
    outcome.of_writer(&file, &mut append);
    outcome.of("ftruncate", file.set_len(4000));
    outcome.of("create", File::create_new(subvolume.join("new")));
    let mut unnamed = OpenOptions::new();
    unnamed.write(true).custom_flags(OFlags::TMPFILE.bits() as i32);
    outcome.of("tmpfile", unnamed.open(&subvolume));
    outcome.of("mkdir", fs::create_dir(subvolume.join("d")));
    left.push(fs::read(subvolume.join("f")).unwrap());
    (outcome.0, left)
}

#[test]
pub(crate) fn protected_files_are_refused_when_they_are_opened() {
    let mounted = Mounted::new();
    succeed(larder().args(["subvolume", "create"]).arg(mounted.join("s")));
    let ours = history(&mounted.path(), |subvolume| {
        succeed(larder().args(["property", "set"]).arg(subvolume).args(["ro", "true"]));
    });
    let image = KernelImage::empty(&ImageSpec::new("refusals"));
    let kernel = image.mount("");
    shell(kernel.path(), "btrfs subvolume create s");
    let theirs = history(kernel.path(), |subvolume| {
        succeed(
            Command::new("btrfs").args(["property", "set"]).arg(subvolume).args(["ro", "true"]),
        );
    });
    for (ours, theirs) in ours.0.iter().zip(&theirs.0) {
        assert_eq!(ours, theirs);
    }
    assert!(ours == theirs);
    mounted.finish();
}

/// The kernel asks no server before a program maps a file, or writes to a mapping: that is not
/// compared.
#[test]
pub(crate) fn programs_with_a_file_open_may_do_the_same_as_on_the_kernels() {
    let image = KernelImage::empty(&ImageSpec::new("opened-before"));
    let kernel = image.mount("");
    shell(kernel.path(), "btrfs subvolume create s");
    let script = include_str!("opened_before.py");
    let history = |place: &Path, program: &str| {
        python(place, script, &[program, "property", "set", "-t", "subvol", "@", "ro", "true"])
    };
    let expected = history(kernel.path(), "btrfs");
    for mut mounted in [Mounted::new(), Mounted::with_writeback_cache()] {
        succeed(larder().args(["subvolume", "create"]).arg(mounted.join("s")));
        let seen = history(&mounted.path(), env!("CARGO_BIN_EXE_larder"));
        assert_same_lines(&seen, &expected);
        // With writeback_cache the kernel's times of protected files differ a little.
        mounted.unmount();
        mounted.check();
    }
}

/// Programs append to an append-only file and touch it, and none of them loses a line.
#[test]
pub(crate) fn append_only_files_lose_nothing() {
    let mounted = Mounted::new();
    mounted.shell("echo 0 > log; chattr +a log");
    for number in 1..=50 {
        mounted.shell(&format!("echo {number} >> log; touch log"));
    }
    let expected = (0..=50).map(|number| number.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    assert_eq!(fs::read_to_string(mounted.join("log")).unwrap(), expected);
    let mut mounted = mounted;
    mounted.unmount();
    mounted.mount(&[]);
    assert_eq!(fs::read_to_string(mounted.join("log")).unwrap(), expected);
    mounted.shell("chattr -a log");
    mounted.finish();
}

/// Existing content stays, even if the program that opened the file to append then clears O_APPEND,
/// or maps it.
#[test]
pub(crate) fn append_only_files_are_not_overwritten() {
    let script = r"
import fcntl, mmap, os
open('log', 'w').write('0123456789')
before = os.open('log', os.O_RDWR)
if os.system('chattr +a log'):
    raise SystemExit('chattr')
both, append = [os.open('log', mode | os.O_APPEND) for mode in (os.O_RDWR, os.O_WRONLY)]
for file in (both, append):
    os.write(file, b'appended')
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, 0)
        os.pwrite(file, b'forged', 0)
        print('overwritten')
    except PermissionError:
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    try:
        mmap.mmap(file, 10)[0:1] = b'm'
        print('mapped')
    except OSError:
        pass
print(mmap.mmap(both, 10, mmap.MAP_PRIVATE)[0:10], os.pread(both, 100, 5))
os.pwrite(before, b'before', 0)
print(open('log').read())
if os.system('chattr -a log'):
    raise SystemExit('chattr')
fcntl.fcntl(append, fcntl.F_SETFL, 0)
os.pwrite(append, b'after', 3)
print(open('log').read(), os.read(both, 100))
";
    let left = |place: &Path| {
        succeed(Command::new("/usr/bin/python3").args(["-c", script]).current_dir(place))
    };
    let mounted = Mounted::new();
    let image = KernelImage::empty(&ImageSpec::new("append"));
    assert_eq!(left(&mounted.path()), left(image.mount("").path()));
    mounted.finish();
}

/// The same with a write cache in the kernel, and its times, beyond the time at which the file
/// becomes protected.
#[test]
pub(crate) fn data_written_before_protection_is_written_back_after() {
    let script = r"
import os, subprocess, sys, time
for path, protect in (('i', ['chattr', '+i', 'i']), ('a', ['chattr', '+a', 'a']),
                      ('s/f', [*sys.argv[1:], 'property', 'set', '-t', 'subvol', 's', 'ro', 'true'])):
    with open(path, 'wb') as file:
        file.write(b'early')
        os.fsync(file.fileno())
        file.write(b'late')
        file.flush()
        before = os.fstat(file.fileno()).st_mtime_ns
        subprocess.check_call(protect)
        for call in (os.fsync, os.fdatasync):
            call(file.fileno())
        # The kernel's clock for files has steps of some milliseconds.
        time.sleep(0.1)
        file.write(b'later')
        file.flush()
        os.fsync(file.fileno())
        after = os.fstat(file.fileno()).st_mtime_ns
    print(path, open(path).read(), after > before)
    if path in 'ia':
        try:
            os.utime(path, (1, 1))
        except PermissionError:
            print('refused')
        subprocess.check_call(['chattr', '-' + path, path])
";
    let mut mounted = Mounted::with_writeback_cache();
    succeed(larder().args(["subvolume", "create"]).arg(mounted.join("s")));
    let image = KernelImage::empty(&ImageSpec::new("written-before"));
    let kernel = image.mount("");
    shell(kernel.path(), "btrfs subvolume create s");
    let seen = python(&mounted.path(), script, &[env!("CARGO_BIN_EXE_larder")]);
    assert_same_lines(&seen, &python(kernel.path(), script, &["btrfs"]));
    // The kernel does not look at the time of change that chattr(1) set.
    mounted.unmount();
    mounted.check();
}

/// A mapped file keeps what the program writes there, before and after it is protected.
#[test]
pub(crate) fn files_mapped_before_are_written() {
    let mounted = Mounted::new();
    mounted.shell("head -c 8192 /dev/zero > f");
    succeed(larder().args(["subvolume", "create"]).arg(mounted.join("s")));
    mounted.shell("cp f s/f");
    let script = r"
import mmap, subprocess, sys
for path, protect in (('f', ['chattr', '+i', 'f']),
                      ('s/f', [sys.argv[1], 'property', 'set', 's', 'ro', 'true'])):
    file = open(path, 'r+b')
    memory = mmap.mmap(file.fileno(), 8192)
    memory[0:6] = b'before'
    subprocess.check_call(protect)
    memory[4096:4101] = b'after'
    memory.flush()
    memory.close()
    file.close()
";
    let mut python = Command::new("/usr/bin/python3");
    succeed(python.args(["-c", script, env!("CARGO_BIN_EXE_larder")]).current_dir(mounted.path()));
    let mut mounted = mounted;
    mounted.unmount();
    mounted.mount(&[]);
    for path in ["f", "s/f"] {
        let data = fs::read(mounted.join(path)).unwrap();
        assert_eq!((&data[..6], &data[4096..4101]), (&b"before"[..], &b"after"[..]), "{path}");
    }
    mounted.shell("chattr -i f");
    mounted.finish();
}
