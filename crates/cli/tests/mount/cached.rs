//! What the kernel keeps of files and has not brought yet: it is found, it is not stale, and asking for it never ends in
//! all of the server waiting for the kernel.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Mounted, larder};

/// What a script may take under load.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a script of Python in the root directory; what hangs is cut off from its server.
#[track_caller]
fn python(mounted: &Mounted, script: &str) {
    let mut python = Command::new("/usr/bin/python3");
    let python = python.args(["-c", script]).current_dir(mounted.path()).stdin(Stdio::null());
    let mut child = python.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = larder().args(["umount", "--force"]).arg(mounted.path()).status();
            let _ = child.wait();
            panic!("it hangs");
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}

/// Many more calls at a time than the server has threads.
const SEEK_ALL: &str = r"
import mmap, os, threading

COUNT = 300
files = []
for number in range(COUNT):
    fd = os.open(str(number), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    files.append((fd, mmap.mmap(fd, 1 << 20)))
found = {}
for at in (0xC0000, 0x80000, 0x40000):
    for fd, memory in files:
        memory[at:at + 1] = b'x'
    barrier = threading.Barrier(COUNT)
    def seek(number):
        barrier.wait()
        fd = files[number][0]
        found[number] = (os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, at, os.SEEK_HOLE))
    threads = [threading.Thread(target=seek, args=(number,)) for number in range(COUNT)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(found[number] == (at, at + 4096) for number in range(COUNT)), found
";

#[test]
fn any_number_of_calls_finds_data_in_mappings() {
    let mounted = Mounted::new();
    python(&mounted, SEEK_ALL);
    mounted.finish();
}

/// With what programs wrote kept by the kernel.
#[test]
fn any_number_of_calls_finds_data_that_is_kept() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "2G", "-o", "writeback_cache"]);
    python(
        &mounted,
        &SEEK_ALL.replace("memory[at:at + 1] = b'x'", "os.pwrite(fd, b'x' * 4096, at)"),
    );
    mounted.finish();
}

/// The kernel is told of each subvolume that appears, and waits for those who change the same directory.
#[test]
fn any_number_of_subvolumes_is_made_beside_directories() {
    let mounted = Mounted::new();
    python(
        &mounted,
        r"
import fcntl, os, threading

COUNT, SUBVOL_CREATE = 150, 0x5000940E
directory = os.open('.', os.O_RDONLY)
barrier = threading.Barrier(2 * COUNT)
def make_subvolume(number):
    barrier.wait()
    name = bytearray(4096)
    name[8:8 + len(str(number))] = str(number).encode()
    fcntl.ioctl(directory, SUBVOL_CREATE, name, True)
def make_directory(number):
    barrier.wait()
    for name in range(20):
        os.mkdir(f'{number}-{name}')
threads = [threading.Thread(target=make, args=(number,))
           for make in (make_subvolume, make_directory) for number in range(COUNT)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(os.listdir('.')) == 21 * COUNT
assert all(os.stat(str(number)).st_nlink == 1 for number in range(COUNT))
",
    );
    mounted.finish();
}

/// As soon as a write around the cache has ended a reader through the cache sees it, though others
/// read the same pages while it was on its way. Without the server's word to the kernel each
/// thirtieth round finds a stale page.
#[test]
pub(crate) fn what_is_written_around_the_cache_is_seen_through_it() {
    let mounted = Mounted::new();
    python(&mounted, include_str!("around_the_cache.py"));
    mounted.shell("dd if=f iflag=direct bs=64k status=none | cmp - f");
    mounted.finish();
}

/// A listing ends, though what it shows is renamed at once and would come again.
#[test]
pub(crate) fn a_listing_ends_though_renames_go_on() {
    let mounted = Mounted::new();
    python(
        &mounted,
        r"
import os

COUNT = 3000
os.mkdir('d')
for number in range(COUNT):
    open(f'd/{number}', 'w').close()
for walk in range(2):
    listed = 0
    with os.scandir('d') as entries:
        for entry in entries:
            os.rename(entry.path, f'd/{walk}-renamed-{listed}')
            listed += 1
            assert listed <= COUNT
    assert listed == COUNT
    assert len(os.listdir('d')) == COUNT
",
    );
    mounted.finish();
}

/// Attributes say what a call did as soon as it has returned.
#[test]
pub(crate) fn attributes_follow_at_once() {
    let mounted = Mounted::new();
    python(
        &mounted,
        r"
import os, subprocess, time

def blocks():
    return os.stat('f').st_blocks * 512

fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 100000)
assert blocks() == 102400, blocks()
os.fsync(fd)
os.pwrite(fd, b'y' * 50000, 0)
assert blocks() == 102400, blocks()
os.pwrite(fd, b'z' * 4096, 1 << 20)
assert blocks() == 106496, blocks()
os.posix_fallocate(fd, 200 * 4096, 8192)
assert blocks() == 114688, blocks()
os.pwrite(fd, b'z' * 8192, 200 * 4096)
assert blocks() == 114688, blocks()
os.ftruncate(fd, 4096)
assert blocks() == 4096, blocks()
def ctime():
    return os.stat('f').st_ctime_ns
for change in (['chattr', '+d'], ['chattr', '-d'], ['setfattr', '-n', 'user.a', '-v', '1'],
               ['chmod', '600'], ['chattr', '+c']):
    before = ctime()
    time.sleep(0.02)
    subprocess.check_call(change + ['f'])
    assert ctime() > before, change
before = os.stat('f').st_mtime_ns
time.sleep(0.02)
os.pwrite(fd, b'a', 0)
assert os.stat('f').st_mtime_ns > before
",
    );
    mounted.finish();
}
