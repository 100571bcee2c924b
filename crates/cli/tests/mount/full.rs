//! A file system that fills up: a program is told by the write that has no room, what it was told is there has its
//! room, and what is deleted makes room again.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::support::{Mounted, succeed, wait_until};

const MIB: u64 = 1 << 20;

fn available_bytes(mounted: &Mounted) -> u64 {
    let room = statvfs(mounted.path()).unwrap();
    room.f_bavail * room.f_frsize
}

/// A mounted file system on one device that is made with these options.
fn made_with(size: &str, options: &[&str]) -> Mounted {
    let mut mounted = Mounted::unmounted();
    let mut mkfs = crate::support::larder();
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

/// What statfs(2) says is available one file can have.
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
