//! Files and block devices as devices.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use larder_device::{Access, Device, DeviceError, FileDevice, Operation};

use crate::support::{Loop, Mount, Scratch, require_root, run};

const MIB: u64 = 1 << 20;

fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xAA; len];
    device.read_at(&mut buf, offset).unwrap();
    buf
}

/// Bytes that differ by offset.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn created_file_is_sparse_zeros_and_keeps_writes() {
    let scratch = Scratch::new();
    let path = scratch.path("new.img");
    let device = FileDevice::create(&path, 64 * MIB).unwrap();
    assert_eq!((device.len_bytes(), device.sector_bytes()), (64 * MIB, 512));
    assert!(device.is_writable() && !device.is_block_device());
    device.write_at(b"bread", 5 * MIB).unwrap();
    device.flush().unwrap();
    drop(device);

    assert!(path.metadata().unwrap().blocks() * 512 < MIB, "takes no space");
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert_eq!(read(&device, 5 * MIB - 1, 7), b"\0bread\0");
    drop(device);

    let device = FileDevice::create(&path, MIB).unwrap();
    device.set_len(64 * MIB).unwrap();
    assert_eq!(read(&device, 5 * MIB - 1, 7), [0; 7], "creating again empties");
}

#[test]
fn vectored_writes_of_many_buffers_arrive_whole() {
    let scratch = Scratch::new();
    let device = FileDevice::create(scratch.path("disk.img"), MIB).unwrap();
    let data = pattern(300_000);
    let mut bufs: Vec<IoSlice<'_>> = data.chunks(97).map(IoSlice::new).collect();
    assert!(bufs.len() > 3 * 1024, "more than one call takes");
    for place in [bufs.len(), 2000, 1024, 0] {
        bufs.insert(place, IoSlice::new(&[]));
    }
    device.write_vectored_at(&bufs, 1234).unwrap();
    assert_eq!(read(&device, 1234, data.len()), data);
    assert_eq!(read(&device, 0, 1234), [0; 1234]);
    device.write_vectored_at(&[IoSlice::new(&[])], 0).unwrap();
}

#[test]
fn calls_past_the_end_fail_and_do_nothing() {
    let scratch = Scratch::new();
    let device = FileDevice::create(scratch.path("disk.img"), 8192).unwrap();
    let refused = |result: Result<(), DeviceError>, operation| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, DeviceError::PastEnd { operation: o, device_len_bytes: 8192, .. }
                if *o == operation),
            "{error}"
        );
    };
    refused(device.read_at(&mut [0; 2], 8191), Operation::Read);
    refused(device.read_at(&mut [0; 2], u64::MAX), Operation::Read);
    refused(device.write_at(&[1; 2], 8191), Operation::Write);
    refused(device.write_vectored_at(&[IoSlice::new(&[1]); 2], 8191), Operation::Write);
    refused(device.discard(8192, 1), Operation::Discard);
    device.readahead(u64::MAX, u64::MAX);
    assert_eq!(read(&device, 8190, 2), [0; 2]);

    let error = device.read_at(&mut [0; 2], 8191).unwrap_err().to_string();
    let expected = "read of 2 bytes at offset 8191 goes past the end of the device at 8192";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn file_that_shrinks_beneath_gives_an_error() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", 8192);
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let error = device.read_at(&mut [0; 8192], 0).unwrap_err();
    assert!(matches!(error, DeviceError::Io { operation: Operation::Read, .. }), "{error}");
}

#[test]
fn read_only_device_refuses_changes() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", 8192);
    for access in [Access::ReadOnly, Access::ReadOnlyDirect] {
        let device = FileDevice::open(&path, access).unwrap();
        assert!(!device.is_writable());
        for result in [device.write_at(b"x", 0), device.discard(0, 4096), device.flush()] {
            assert!(matches!(result, Err(DeviceError::ReadOnly { .. })), "{result:?}");
        }
    }
    assert_eq!(fs::read(&path).unwrap(), [0; 8192]);
}

#[test]
fn other_file_types_are_refused_without_waiting() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    run("mkfifo", &[&pipe]);
    let directory = scratch.directory("directory");
    for path in [&pipe, &directory, Path::new("/dev/null")] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = FileDevice::open(path, access).unwrap_err().to_string();
            assert!(error.ends_with(": neither a regular file nor a block device"), "{error}");
        }
    }
    let missing = FileDevice::open(scratch.path("missing"), Access::ReadWrite).unwrap_err();
    assert!(matches!(missing, DeviceError::Open { .. }), "{missing}");
}

#[test]
fn discard_frees_whole_sectors_of_a_file() {
    let scratch = Scratch::new();
    let path = scratch.path("disk.img");
    let device = FileDevice::create(&path, 4 * MIB).unwrap();
    device.write_at(&vec![7; 4 * MIB as usize], 0).unwrap();
    device.discard(1, 3 * MIB).unwrap();
    device.flush().unwrap();
    assert_eq!(read(&device, 0, 512), [7; 512], "the edge stays");
    assert_eq!(read(&device, 3 * MIB, 1), [7], "the other edge too");
    assert!(path.metadata().unwrap().blocks() * 512 < 2 * MIB);
    assert_eq!(device.len_bytes(), 4 * MIB);
    device.discard(100, 200).unwrap();
    assert_eq!(read(&device, 0, 512), [7; 512], "less than a sector is nothing");
}

#[test]
fn direct_reads_of_any_range_agree() {
    let scratch = Scratch::new();
    let path = scratch.path("disk.img");
    let data = pattern(3 * MIB as usize + 1234);
    fs::write(&path, &data).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let device = FileDevice::open(&path, Access::ReadOnlyDirect).unwrap();
    let len = data.len();
    let ranges = [0..4096, 0..len, 1..2, 4095..4097, len - 1..len, len - 4097..len, 777..len - 777];
    for range in ranges {
        let mut storage = vec![0; range.len() + 8192];
        // An aligned address, and an unaligned one.
        let aligned = storage.as_ptr().addr().next_multiple_of(4096) - storage.as_ptr().addr();
        for start in [aligned, aligned + 1] {
            let buf = &mut storage[start..start + range.len()];
            buf.fill(0);
            device.read_at(buf, range.start as u64).unwrap();
            assert!(buf == &data[range.clone()], "{range:?} at {start}");
        }
    }
    assert!(matches!(
        device.read_at(&mut [0; 2], len as u64 - 1),
        Err(DeviceError::PastEnd { .. })
    ));
}

#[test]
fn missing_direct_io_is_reported() {
    let error = FileDevice::open("/proc/version", Access::ReadOnlyDirect).unwrap_err().to_string();
    assert_eq!(error, "/proc/version: the file system does not support direct I/O");
}

#[test]
fn direct_reads_go_around_the_page_cache() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let attached = Loop::attach(&path);
    let cached = FileDevice::open(&attached.0, Access::ReadOnly).unwrap();
    assert_eq!(read(&cached, 0, 4096), [0; 4096]);
    // Bypasses the loop device's page cache.
    File::options().write(true).open(&path).unwrap().write_all_at(&[9; 4096], 0).unwrap();

    assert_eq!(read(&cached, 0, 4096), [0; 4096], "from the cache");
    let direct = FileDevice::open(&attached.0, Access::ReadOnlyDirect).unwrap();
    assert_eq!(read(&direct, 0, 4096), [9; 4096]);
    cached.drop_cache();
    assert_eq!(read(&cached, 0, 4096), [9; 4096], "the cache was dropped");
}

#[test]
fn block_device_reads_writes_and_discards() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", 8 * MIB);
    let attached = Loop::attach_with(&["--sector-size", "4096"], &path);
    let device = FileDevice::open(&attached.0, Access::ReadWrite).unwrap();
    assert!(device.is_block_device());
    assert_eq!((device.len_bytes(), device.sector_bytes()), (8 * MIB, 4096));
    assert_eq!(device.name(), attached.0.to_str().unwrap());

    let data = pattern(10_000);
    device.write_at(&data, 3).unwrap();
    device.flush().unwrap();
    device.readahead(0, 8 * MIB);
    assert_eq!(read(&device, 3, data.len()), data);
    assert_eq!(fs::read(&path).unwrap()[3..10_003], data);

    device.discard(100, 8192).unwrap();
    let after = read(&device, 3, data.len());
    assert_eq!(after[..4093], data[..4093], "the edge stays");
    assert_eq!(after[4093..8189], [0; 4096], "a loop device frees its file's blocks");
    assert_eq!(after[8189..], data[8189..], "the other edge too");
    assert!(matches!(device.set_len(MIB), Err(DeviceError::Resize { .. })));
    assert!(matches!(device.read_at(&mut [0; 2], 8 * MIB - 1), Err(DeviceError::PastEnd { .. })));
}

#[test]
fn no_flush_succeeds_after_one_failed() {
    require_root!();
    let scratch = Scratch::new();
    // A loop device that is larger than the file system of its file.
    let small = Mount::new(&["-t", "tmpfs", "-o", "size=1m"], "none", scratch.directory("small"));
    let path = small.0.join("disk.img");
    File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    let attached = Loop::attach(&path);
    let device = FileDevice::open(&attached.0, Access::ReadWrite).unwrap();
    device.write_at(&vec![1; 4 * MIB as usize], 0).unwrap();
    assert!(device.flush().is_err());
    let error = device.flush().unwrap_err().to_string();
    assert!(error.ends_with("an earlier flush failed"), "{error}");
}
