//! The memory of a server is bounded, whatever programs do.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::thread;

use larder_testkit::KernelMount;
use rustix::fs::{OFlags, SeekFrom as Sought, seek};

use crate::support::{Mounted, larder, shell, succeed};

/// The value of `--memory`, in KiB.
const GIVEN_KIB: u64 = 128 << 10;
/// The most memory that a server may have used: a tenth more, for an allocator with many threads.
const BOUND_KIB: u64 = GIVEN_KIB / 10 * 11;
const MIB: usize = 1 << 20;

/// Makes a server with little memory do `work`, and checks how much it took.
#[track_caller]
fn bounded(options: &[&str], work: impl FnOnce(&Mounted)) {
    let mut mounted = Mounted::unmounted();
    mounted.serve_in_foreground(&[&["--memory", "128M"], options].concat());
    work(&mounted);
    let peak = mounted.peak_kib();
    assert!(peak <= BOUND_KIB, "{peak} KiB");
    mounted.unmount();
    mounted.check();
}

/// Does `work` in so many threads, with their numbers.
fn by_threads(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..count {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

/// Data that becomes about half as long when it is compressed.
fn data(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let words = (0..len / 8).map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes files of `len_mib` MiB by so many threads at once.
fn write_files(mounted: &Mounted, writers: usize, len_mib: usize) {
    by_threads(writers, |number| {
        let data = data(number, MIB);
        let mut file = File::create_new(mounted.join(format!("file{number}"))).unwrap();
        (0..len_mib).for_each(|_| file.write_all(&data).unwrap());
    });
}

fn make_files(mounted: &Mounted, folders: usize, files: usize) {
    for folder in 0..folders {
        let folder = mounted.join(format!("folder{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..files {
            File::create_new(folder.join(file.to_string())).unwrap();
        }
    }
}

/// A file system whose content lies in objects has part of the memory for those that are on their
/// way, and for those that were fetched.
#[test]
fn objects_fit_into_the_memory() {
    let mut mounted = Mounted::on_objects();
    mounted.serve(&["--create", "16G", "--memory", "128M"]);
    write_files(&mounted, 4, 64);
    make_files(&mounted, 20, 500);
    mounted.shell("sync file0");
    for _ in 0..2 {
        mounted.shell("cat file* | wc -c && ls -lR | wc -l");
    }
    let peak = mounted.peak_kib();
    assert!(peak <= BOUND_KIB, "{peak} KiB");
    mounted.unmount();
    // What was read is now in no cache of the kernel.
    mounted.serve(&["--memory", "128M"]);
    by_threads(8, |number| {
        succeed(Command::new("cat").arg(mounted.join(format!("file{}", number % 4))));
    });
    mounted.shell("find . -ls | wc -l");
    let peak = mounted.peak_kib();
    assert!(peak <= BOUND_KIB, "{peak} KiB");
    mounted.unmount();
}

#[test]
fn many_files_and_walks_fit_into_the_memory() {
    bounded(&[], |mounted| {
        make_files(mounted, 40, 500);
        for _ in 0..9 {
            by_threads(2, |_| {
                succeed(Command::new("ls").arg("-lR").arg(mounted.path()));
            });
        }
    });
}

/// There are more of them than the server may remember. The kernel creates the files, which is
/// faster.
#[test]
fn listings_with_attributes_fit_into_the_memory() {
    const LARGE: usize = 80_000;
    let mut mounted = Mounted::unmounted();
    succeed(Command::new("truncate").args(["-s", "2G"]).arg(mounted.image()));
    succeed(Command::new("mkfs.btrfs").arg("-q").arg(mounted.image()));
    {
        let kernel = KernelMount::open(&[mounted.image()], "");
        let line = format!("mkdir a b; for d in a b; do (cd $d; seq {LARGE} | xargs touch); done");
        shell(kernel.path(), &line);
    }
    mounted.serve(&["--memory", "128M"]);
    for _ in 0..2 {
        let names = mounted.shell("find . -printf '%s %p\n' | wc -l");
        assert_eq!(names.trim(), (2 * LARGE + 3).to_string());
    }
    let peak = mounted.peak_kib();
    assert!(peak <= BOUND_KIB, "{peak} KiB");
    mounted.unmount();
    mounted.check();
}

/// What the server keeps for an inode that was written or read must not add up.
#[test]
fn files_that_are_written_and_read_fit_into_the_memory() {
    bounded(&[], |mounted| {
        mounted.shell(
            "for d in a b; do
                 mkdir $d; (cd $d; head -c 100000000 /dev/zero | tr '\\0' x | split -a 5 -b 5000);
             done
             diff -rq a b",
        );
    });
}

#[test]
pub(crate) fn writes_fit_into_the_memory() {
    bounded(&[], |mounted| write_files(mounted, 4, 64));
    bounded(&[], |mounted| write_files(mounted, 64, 8));
    bounded(&["-o", "compress-force=lzo"], |mounted| write_files(mounted, 16, 16));
    bounded(&["-o", "compress-force=zstd:15"], |mounted| write_files(mounted, 16, 2));
}

#[test]
pub(crate) fn reads_fit_into_the_memory() {
    const LEN_MIB: usize = 64;
    for options in [&[][..], &["-o", "compress-force=lzo"]] {
        bounded(options, |mounted| {
            write_files(mounted, 4, LEN_MIB);
            by_threads(64, |number| {
                let path = mounted.join(format!("file{}", number % 4));
                // Past the kernel's cache: each read is a request.
                let direct = OFlags::DIRECT.bits() as i32;
                let file = OpenOptions::new().read(true).custom_flags(direct).open(path).unwrap();
                let (mut page, mut long) = (vec![0; 4096], vec![0; MIB]);
                for step in 0..20 {
                    let at = (number * 7919 + step * 104_729) % (LEN_MIB * 256 - 256);
                    file.read_exact_at(&mut page, at as u64 * 4096).unwrap();
                }
                file.read_exact_at(&mut long, (number % LEN_MIB * MIB) as u64).unwrap();
            });
        });
    }
}

#[test]
fn deletions_fit_into_the_memory() {
    bounded(&[], |mounted| {
        make_files(mounted, 10, 1000);
        succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
        mounted.shell("rm -rf folder*");
    });
}

#[test]
fn bulk_changes_fit_into_the_memory() {
    bounded(&[], |mounted| {
        let source = mounted.folder().join("source");
        fs::create_dir(&source).unwrap();
        shell(
            &source,
            "for d in $(seq 200); do mkdir $d; (cd $d; seq 100 | xargs touch; echo $d > data); done",
        );
        succeed(larder().args(["cp", "-a"]).arg(&source).arg(mounted.path()));
        // The kernel knows all of them.
        mounted.shell("ls -lR source > /dev/null");
        succeed(larder().args(["chmod", "-R", "a+w"]).arg(mounted.join("source")));
        succeed(larder().args(["rm", "-r"]).arg(mounted.join("source")));
    });
}

#[test]
fn snapshots_and_streams_fit_into_the_memory() {
    bounded(&[], |mounted| {
        let subvolume = |arguments: &[&str]| {
            succeed(larder().arg("subvolume").args(arguments).current_dir(mounted.path()));
        };
        subvolume(&["create", "work"]);
        mounted.shell("cd work; for n in $(seq 5000); do echo $n > $n; done");
        let data = data(1, 64 * MIB);
        fs::write(mounted.join("work/large"), data).unwrap();
        for number in 0..10 {
            let name = number.to_string();
            subvolume(&["snapshot", "-r", "work", &name]);
            mounted.shell("cd work; for n in $(seq 1 50 5000); do echo more >> $n; done");
        }
        fs::create_dir(mounted.join("received")).unwrap();
        let program = larder().get_program().to_owned();
        let program = program.display();
        mounted.shell(&format!("{program} send 0 | {program} receive received >&2"));
        (0..10).for_each(|number| subvolume(&["delete", &number.to_string()]));
    });
}

#[test]
fn missing_names_fit_into_the_memory() {
    bounded(&[], |mounted| {
        for number in 0..60_000 {
            let found = fs::metadata(mounted.join(number.to_string()));
            assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound);
        }
    });
}

#[test]
pub(crate) fn seeking_data_in_many_files_fits_into_the_memory() {
    bounded(&[], |mounted| {
        by_threads(300, |number| {
            let path = mounted.join(number.to_string());
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).create_new(true).open(path).unwrap();
            for page in (0..64).step_by(2) {
                file.seek(SeekFrom::Start(page * 4096)).unwrap();
                file.write_all(&[7; 4096]).unwrap();
            }
            assert_eq!(seek(&file, Sought::Data(1)).unwrap(), 1);
        });
    });
}
