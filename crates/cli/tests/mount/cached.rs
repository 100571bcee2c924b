//! Data that the kernel caches and has not written back yet: the server finds it, it is not stale,
//! and asking for it never blocks the whole server.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::{ImageSpec, KernelImage};

use crate::support::{self, Mounted, assert_same_lines, is_over_rings, larder};
use crate::trace::Trace;

/// How long a script may take under load.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a script of Python in the root directory; a script that hangs is cut off from its server.
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
import mmap, os, threading, time

COUNT = 300
files = []
for number in range(COUNT):
    fd = os.open(str(number), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    files.append((fd, mmap.mmap(fd, 1 << 20)))
def seek_from(number, offset, whence):
    while True:
        try:
            return os.lseek(files[number][0], offset, whence)
        except BlockingIOError:
            # Only the kernel knows where the file ends, and the server must not ask it now.
            time.sleep(0.01)
def is_right(data, hole):
    return (data, hole) == (at, at + 4096) if EXACT else data <= at and at + 4096 <= hole <= 1 << 20
found = {}
for at in (0xC0000, 0x80000, 0x40000):
    for fd, memory in files:
        memory[at:at + 1] = b'x'
    barrier = threading.Barrier(COUNT)
    def seek(number):
        barrier.wait()
        found[number] = (seek_from(number, 0, os.SEEK_DATA), seek_from(number, at, os.SEEK_HOLE))
    threads = [threading.Thread(target=seek, args=(number,)) for number in range(COUNT)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(is_right(*found[number]) for number in range(COUNT)), found
# One call at a time is always answered exactly.
for number in range(COUNT):
    found[number] = (seek_from(number, 0, os.SEEK_DATA), seek_from(number, at, os.SEEK_HOLE))
    assert found[number] == (at, at + 4096), found[number]
";

/// `SEEK_ALL`, which demands to the byte where the data is. Over rings, too few threads may be left
/// to serve the requests that the kernel makes first: then all may be data.
fn seek_all() -> String {
    let exact = if is_over_rings() { "False" } else { "True" };
    SEEK_ALL.replace("EXACT", exact)
}

#[test]
pub(crate) fn any_number_of_calls_finds_data_in_mappings() {
    let mounted = Mounted::new();
    python(&mounted, &seek_all());
    mounted.finish();
}

/// With a write cache in the kernel.
#[test]
pub(crate) fn any_number_of_calls_finds_data_that_is_kept() {
    let mounted = Mounted::with_writeback_cache();
    python(
        &mounted,
        &seek_all().replace("memory[at:at + 1] = b'x'", "os.pwrite(fd, b'x' * 4096, at)"),
    );
    mounted.finish();
}

/// The kernel is told of each new subvolume, and waits for threads that change the same directory.
#[test]
pub(crate) fn any_number_of_subvolumes_is_made_beside_directories() {
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

/// Everything that makes the server call the kernel at once, by many more threads than the server
/// has, while programs that do the same are killed.
#[test]
pub(crate) fn any_number_of_calls_of_all_kinds_is_answered() {
    let mounted = Mounted::new();
    python(
        &mounted,
        r"
import fcntl, mmap, os, random, signal, threading, time

SEEKERS, OTHERS, ROUNDS, SIZE = 300, 20, 3, 1 << 20
SUBVOL_CREATE, SNAP_DESTROY, SETFLAGS = 0x5000940E, 0x5000940F, 0x40086602
NODUMP = 0x40

files = []
for number in range(SEEKERS):
    fd = os.open(str(number), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, SIZE)
    files.append((fd, mmap.mmap(fd, SIZE)))
os.mkdir('there')
there = os.open('there', os.O_RDONLY)
aligned = mmap.mmap(-1, 4096)

def pause():
    return barrier.wait()
def seek(number):
    fd, memory = files[number]
    for round in range(ROUNDS):
        at = 0x10000 * (15 - round)
        memory[at:at + 1] = b'x'
        pause()
        assert os.lseek(fd, 0, os.SEEK_DATA) <= at
        assert at + 4096 <= os.lseek(fd, at, os.SEEK_HOLE) <= SIZE
def write_around(number):
    fd = os.open(str(number), os.O_RDWR | os.O_DIRECT)
    for round in range(ROUNDS):
        pause()
        for at in range(0, 32768, 4096):
            assert os.pwrite(fd, aligned, at) == 4096
def truncate(number):
    fd = os.open(f'cut-{number}', os.O_RDWR | os.O_CREAT)
    for round in range(ROUNDS):
        pause()
        for size in (100000, 5, 70000):
            os.pwrite(fd, b'y' * size, 0)
            os.ftruncate(fd, size // 2)
            assert os.lseek(fd, 0, os.SEEK_DATA) == 0
def change_flags(number):
    for round in range(ROUNDS):
        pause()
        for flags in (NODUMP, 0):
            fcntl.ioctl(files[number][0], SETFLAGS, flags.to_bytes(8, 'little'))
def make_subvolumes(number):
    def called(name):
        return bytearray(8) + name.encode().ljust(4088, bytes(1))
    for round in range(ROUNDS):
        pause()
        name = f'subvolume-{number}-{round}'
        fcntl.ioctl(there, SUBVOL_CREATE, called(name), True)
        fcntl.ioctl(there, SNAP_DESTROY, called(name), True)
def make_directories(number):
    for round in range(ROUNDS):
        pause()
        for name in range(5):
            os.mkdir(f'there/{number}-{round}-{name}')
kinds = (write_around, truncate, change_flags, make_subvolumes, make_directories)

def forever(number):
    fd, memory = files[number % SEEKERS]
    while True:
        # In few places: at the end each is looked for.
        at = 0x10000 * random.randrange(SIZE // 0x10000)
        memory[at:at + 1] = b'z'
        os.lseek(fd, at, os.SEEK_DATA)
victims = []
for victim in range(4):
    pid = os.fork()
    if pid == 0:
        try:
            others = [threading.Thread(target=forever, args=(victim * 16 + number,)) for number in range(16)]
            [other.start() for other in others]
            [other.join() for other in others]
        finally:
            os._exit(1)
    victims.append(pid)

barrier = threading.Barrier(SEEKERS + OTHERS * len(kinds))
failed = []
def run(kind, number):
    try:
        kind(number)
    except BaseException as error:
        failed.append((kind.__name__, number, error))
        barrier.abort()
threads = [threading.Thread(target=run, args=(seek, number)) for number in range(SEEKERS)]
threads += [threading.Thread(target=run, args=(kind, number)) for kind in kinds for number in range(OTHERS)]
[thread.start() for thread in threads]
for victim in victims:
    time.sleep(0.2)
    os.kill(victim, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(victim, 0)[1])
[thread.join() for thread in threads]
assert not failed, failed
assert len(os.listdir('there')) == 5 * OTHERS * ROUNDS
",
    );
    mounted.finish();
}

/// As soon as a direct write has ended, a reader through the cache sees it, though others read the
/// same pages meanwhile. Without the server's notice to the kernel every thirtieth round finds a
/// stale page.
#[test]
pub(crate) fn direct_writes_are_seen_through_the_cache() {
    let mounted = Mounted::new();
    python(&mounted, include_str!("around_the_cache.py"));
    mounted.shell("dd if=f iflag=direct bs=64k status=none | cmp - f");
    mounted.finish();
}

/// Bytes that programs store past the end of a mapped file are zeros when the file grows, as on the
/// kernel's.
#[test]
pub(crate) fn bytes_past_the_end_of_a_mapped_file_are_not_content() {
    let script = include_str!("past_the_end.py");
    let mounted = Mounted::new();
    let image = KernelImage::empty(&ImageSpec::new("past-the-end"));
    let kernel = image.mount("");
    let seen = support::python(&mounted.path(), script, &[]);
    assert_same_lines(&seen, &support::python(kernel.path(), script, &[]));
    mounted.finish();
}

/// A listing ends, though each entry is renamed at once and would come again.
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

/// Attributes show the effect of a call as soon as it has returned.
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

/// The kernel need not ask again for the attributes of data that the server has not written back:
/// writeback does not change them.
#[test]
pub(crate) fn attributes_stay_known_while_data_waits() {
    let mounted = Mounted::new();
    let trace = Trace::of(&mounted.path());
    mounted.shell("for n in 5 3000 5000 200000; do head -c $n /dev/zero > $n; done");
    let stat = || mounted.shell("stat -c '%s %b %y %z' 5 3000 5000 200000");
    let before = stat();
    // The server could only vouch for some seconds.
    thread::sleep(Duration::from_millis(1500));
    let counts = trace.count(|| assert_eq!(stat(), before));
    assert_eq!(counts.values().sum::<u64>(), 0, "{counts:?}");
    support::succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    assert_eq!(stat(), before);
    // Asked again, it says the same.
    let touched = "chown 1 *; stat -c '%s %b' *";
    let sizes = |said: &str| -> Vec<String> {
        let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let mut lines: Vec<_> = said.lines().map(words).collect();
        lines.sort();
        lines
    };
    assert_eq!(sizes(&mounted.shell(touched)), sizes(&before));
    mounted.finish();
}
