//! A file system that fills up: the write that finds no space fails, accepted data has its space,
//! and deleting frees space again.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;

use larder_testkit::{KernelMount, oracle};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::support::{Mounted, larder, succeed, wait_until};

const MIB: u64 = 1 << 20;

fn available_bytes(mounted: &Mounted) -> u64 {
    available_in(&mounted.path())
}

fn available_in(folder: &Path) -> u64 {
    let room = statvfs(folder).unwrap();
    room.f_bavail * room.f_frsize
}

/// A mounted file system on one device, created with these options.
fn made_with(size: &str, options: &[&str]) -> Mounted {
    let mut mounted = Mounted::unmounted();
    let mut mkfs = larder();
    succeed(mkfs.args(["mkfs", "-q", "-b", size]).args(options).arg(mounted.image()));
    mounted.mount(&["-o", "commit=1"]);
    mounted
}

#[test]
pub(crate) fn write_says_that_there_is_no_room() {
    let mounted = made_with("256M", &[]);
    for round in 0..3 {
        let mut file = File::create_new(mounted.join("f")).unwrap();
        let (piece, mut written_bytes) = (vec![3; 64 << 10], 0);
        let error = loop {
            match file.write(&piece) {
                Ok(len) => written_bytes += len as u64,
                Err(error) => break error,
            }
            assert!(written_bytes < 256 * MIB, "round {round}");
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "round {round}");
        assert!(written_bytes > 64 * MIB, "round {round}: {written_bytes}");
        file.sync_all().unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), written_bytes, "round {round}");
        assert_eq!(metadata.blocks() * 512, written_bytes, "round {round}");
        drop(file);
        let read = fs::read(mounted.join("f")).unwrap();
        assert!(read.len() as u64 == written_bytes && read.iter().all(|byte| *byte == 3));
        fs::remove_file(mounted.join("f")).unwrap();
        wait_until("what was deleted is free", || available_bytes(&mounted) > 64 * MIB);
    }
    mounted.finish();
}

/// One file can have all the space that statfs(2) reports.
#[test]
pub(crate) fn all_that_is_available_is_allocated() {
    let cases: [(&str, &[&str]); 6] = [
        ("128M", &[]),
        ("300M", &[]),
        ("1G", &[]),
        ("5G", &[]),
        ("1G", &["-d", "dup"]),
        ("256M", &["--mixed"]),
    ];
    for (size, options) in cases {
        let mounted = made_with(size, options);
        let file = File::create_new(mounted.join("f")).unwrap();
        let len_bytes = available_bytes(&mounted);
        assert!(len_bytes > 8 * MIB, "{size} {options:?}: {len_bytes}");
        let allocated = fallocate(&file, FallocateFlags::empty(), 0, len_bytes);
        assert_eq!(allocated, Ok(()), "{size} {options:?}: {len_bytes}");
        assert_eq!(file.metadata().unwrap().blocks() * 512, len_bytes);
        drop(file);
        fs::remove_file(mounted.join("f")).unwrap();
        wait_until("what was deleted is free", || available_bytes(&mounted) > len_bytes / 2);
        mounted.finish();
    }
}

/// Files that as many threads write at once until the space runs out.
const WRITERS: u8 = 4;

/// Makes all of them write until write(2) refuses. Returns how many bytes of each were accepted.
fn fill(folder: &Path) -> Vec<u64> {
    let write = |number: u8| {
        let mut file = File::create_new(folder.join(number.to_string())).unwrap();
        let (piece, mut written_bytes) = (vec![number + 1; 64 << 10], 0);
        let error = loop {
            match file.write(&piece) {
                Ok(len) => written_bytes += len as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        file.sync_all().unwrap();
        written_bytes
    };
    thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || write(number))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// All accepted data is there, and nothing else.
#[track_caller]
fn assert_filled(folder: &Path, written_bytes: &[u64]) {
    for (number, len_bytes) in (1..).zip(written_bytes) {
        let file = File::open(folder.join((number - 1).to_string())).unwrap();
        assert_eq!(file.metadata().unwrap().len(), *len_bytes, "{number}");
        let mut piece = vec![0; 1 << 20];
        for start in (0..*len_bytes).step_by(piece.len()) {
            let len = (len_bytes - start).min(piece.len() as u64) as usize;
            file.read_exact_at(&mut piece[..len], start).unwrap();
            assert!(piece[..len].iter().all(|byte| *byte == number), "{number} from {start} on");
        }
    }
}

/// Deletes the files; returns how much space is available afterwards.
fn empty(folder: &Path, least_bytes: u64) -> u64 {
    (0..WRITERS).for_each(|number| fs::remove_file(folder.join(number.to_string())).unwrap());
    succeed(std::process::Command::new("sync").arg("-f").arg(folder));
    wait_until("what was deleted is free", || available_in(folder) >= least_bytes);
    available_in(folder)
}

/// On devices of these sizes, data that write(2) accepts survives. It is within two percent of what
/// the kernel accepts, and as much fits again after all of it was deleted. One file can use all the
/// space that statfs(2) reports.
fn fills_as_on_the_kernels(profile: &str, metadata: &str, sizes_mib: &[u64]) {
    let mut mounted = Mounted::unmounted();
    let made = |name: &str| -> Vec<PathBuf> {
        let path = |number| mounted.folder().join(format!("{name}-{number}"));
        let files: Vec<_> = (0..sizes_mib.len()).map(path).collect();
        for (file, size_mib) in files.iter().zip(sizes_mib) {
            File::create_new(file).unwrap().set_len(size_mib * MIB).unwrap();
        }
        succeed(larder().args(["mkfs", "-q", "-d", profile, "-m", metadata]).args(&files));
        files
    };
    let kernel = KernelMount::open(&made("kernel"), "");
    let expected_bytes: u64 = fill(kernel.path()).iter().sum();
    drop(kernel);

    let files = made("device");
    fs::rename(&files[0], mounted.image()).unwrap();
    let files: Vec<_> = [mounted.image()].into_iter().chain(files.into_iter().skip(1)).collect();
    let others: Vec<_> = files[1..].iter().map(|file| file.to_str().unwrap()).collect();
    mounted.mount(&others);
    let filled = fill(&mounted.path());
    mounted.unmount();
    mounted.mount(&others);
    assert_filled(&mounted.path(), &filled);
    let filled_bytes: u64 = filled.iter().sum();
    let what = format!("{profile} {sizes_mib:?}: {filled_bytes} and {expected_bytes}");
    assert!(filled_bytes >= expected_bytes / 100 * 98, "{what}");
    let available_bytes = empty(&mounted.path(), filled_bytes / 100 * 98);
    let file = File::create_new(mounted.join("f")).unwrap();
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, available_bytes), Ok(()), "{what}");
    drop(file);
    fs::remove_file(mounted.join("f")).unwrap();
    let again = fill(&mounted.path());
    assert!(again.iter().sum::<u64>() >= filled_bytes / 100 * 98, "{what}: {again:?}");
    mounted.unmount();
    oracle::check(&files, false).unwrap_or_else(|error| panic!("{error}"));
    succeed(larder().arg("check").args(&files));
    assert_filled(KernelMount::open(&files, "ro").path(), &again);
}

#[test]
fn mirrors_fill_as_on_the_kernels() {
    fills_as_on_the_kernels("raid1", "raid1", &[200, 200]);
    fills_as_on_the_kernels("raid1c3", "raid1c3", &[200, 200, 200]);
    fills_as_on_the_kernels("dup", "dup", &[300]);
}

#[test]
fn stripes_fill_as_on_the_kernels() {
    fills_as_on_the_kernels("raid0", "raid1", &[150, 150]);
    fills_as_on_the_kernels("raid10", "raid10", &[150, 150, 150, 150]);
}

#[test]
fn devices_of_unequal_size_fill_as_on_the_kernels() {
    fills_as_on_the_kernels("raid1", "raid1", &[150, 300, 200]);
    fills_as_on_the_kernels("single", "raid1", &[130, 300]);
}
