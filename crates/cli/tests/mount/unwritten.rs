//! Data that programs have written and the server does not know: no backup takes it for zeros.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{Mounted, larder, succeed};

/// A program that makes files in its directory, and keeps what it wrote to itself and to the kernel
/// until its input ends.
const WRITES: &str = "import mmap, os, sys
def new(name): return os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
keep = []
for name in ['written', 'synced']:
    f = new(name); keep.append(f); os.write(f, b'payload!' * 131072)
    if name == 'synced': os.fsync(f)
for name in ['mapped', 'grown', 'msynced']:
    if name == 'grown': os.truncate(name, 1 << 20)
    f = new(name); os.ftruncate(f, 1 << 20); m = mmap.mmap(f, 1 << 20); keep.append((f, m))
    os.stat(name); m[500000:500008] = b'payload!'
    if name == 'msynced': m.flush()
print('ready', flush=True); sys.stdin.read()";

fn writing(mounted: &Mounted) -> Child {
    // Seen before, as files that take no space.
    mounted.shell("truncate -s 1M grown; stat grown; find . -ls");
    let mut program = Command::new("/usr/bin/python3");
    program.args(["-c", WRITES]).current_dir(mounted.path());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    program
}

fn sparse_archives_have_the_content(mounted: Mounted) {
    for archive in ["tar -S -cf ../a.tar", "tar --hole-detection=raw -S -cf ../a.tar"] {
        mounted.shell("rm -f *");
        let mut program = writing(&mounted);
        mounted.shell("ls -lsR > ../listed; test $(stat -c %b synced) -ge 2048");
        // A file may change while it is read: writing back sets its times.
        mounted.shell(&format!("{archive} * || test $? = 1; mkdir ../x; tar -xf ../a.tar -C ../x"));
        mounted.shell("for f in *; do cmp $f ../x/$f; done; rm -r ../x");
        // After the end of the program all numbers are right.
        drop(program.stdin.take());
        program.wait().unwrap();
        mounted.shell("touch empty; truncate -s 1M hole; du -k synced mapped");
        assert_eq!(mounted.shell("stat -c %b empty hole"), "0\n0\n");
        assert_eq!(mounted.shell("stat -c %b written synced"), "2048\n2048\n");
        mounted.shell("test $(stat -c %b mapped) -lt 2048; test $(stat -c %b mapped) -gt 0");
    }
    mounted.finish();
}

#[test]
fn sparse_archives_have_what_programs_stored_to_mappings() {
    sparse_archives_have_the_content(Mounted::new());
}

#[test]
fn sparse_archives_have_what_the_kernel_caches() {
    sparse_archives_have_the_content(Mounted::with_writeback_cache());
}

#[test]
fn changes_in_bulk_show_in_the_times_of_files() {
    let mounted = Mounted::with_writeback_cache();
    mounted.shell("mkdir d; echo x > d/f; ln d/f d/g; stat d/f; touch -d 2001-01-01 d/f");
    let ctime = || mounted.shell("stat -c %.9Z d/f; stat -c %a d/f");
    let mut before = ctime();
    for words in ["chmod -R 700 d", "chown -R 1:1 d", "chmod 711 d/f"] {
        let words: Vec<&str> = words.split(' ').collect();
        succeed(larder().args(words).current_dir(mounted.path()));
        let after = ctime();
        assert_ne!(after, before);
        before = after;
    }
    mounted.finish();
}

#[test]
fn filesystem_du_counts_what_is_not_committed() {
    for mounted in [Mounted::new(), Mounted::with_writeback_cache()] {
        let mut program = writing(&mounted);
        let du = ["filesystem", "du", "--raw", "-s", "synced", "written"];
        let counted = succeed(larder().args(du).current_dir(mounted.path()));
        assert_eq!(counted.matches("1048576").count(), 4, "{counted}");
        drop(program.stdin.take());
        program.wait().unwrap();
        mounted.finish();
    }
}
