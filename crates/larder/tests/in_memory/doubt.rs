//! A device that keeps copies, which are wrong until somebody doubts them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder::OpenOptions;
use larder::device::{Device, DeviceError, MemoryDevice};
use larder_mkfs::MkfsOptions;

use super::{make, open};

#[derive(Debug)]
struct Stale {
    device: Arc<MemoryDevice>,
    /// So many doubts make its copies right.
    wrong: AtomicU64,
}

impl Device for Stale {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.device.read_at(buf, offset)?;
        if self.wrong.load(Ordering::Relaxed) > 0 {
            buf.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
        }
        Ok(())
    }

    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> Result<(), DeviceError> {
        unreachable!("it is read-only")
    }

    fn flush(&self) -> Result<(), DeviceError> {
        unreachable!("it is read-only")
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        unreachable!("it is read-only")
    }

    fn readahead(&self, _: u64, _: u64) {}

    fn doubt(&self, _: u64, _: u64) -> bool {
        let before = self.wrong.load(Ordering::Relaxed);
        self.wrong.store(before.saturating_sub(1), Ordering::Relaxed);
        before > 0
    }
}

#[test]
fn what_fails_a_checksum_is_read_again_past_the_copies() {
    let device = make(1, &MkfsOptions::default()).remove(0);
    let fs = open(vec![Arc::clone(&device) as _], OpenOptions::new());
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let root = fs.subvolume("/").unwrap();
    root.create_directory("folder", 0o755).unwrap();
    root.create("folder/file", 0o644).unwrap().write_at(&content, 0).unwrap();
    fs.sync().unwrap();
    drop((root, fs));

    let stale = Arc::new(Stale { device, wrong: AtomicU64::new(0) });
    let fs = OpenOptions::new().open_devices(vec![Arc::clone(&stale) as _]).unwrap();
    let root = fs.subvolume("/").unwrap();
    let file = root.open_file("folder/file").unwrap();
    for (at, part) in content.chunks(100_000).enumerate() {
        stale.wrong.store(1, Ordering::Relaxed);
        let mut found = vec![0; part.len()];
        file.read_at(&mut found, at as u64 * 100_000).unwrap();
        assert!(found == part);
        assert_eq!(stale.wrong.load(Ordering::Relaxed), 0, "it was doubted");
    }
}
