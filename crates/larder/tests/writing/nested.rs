//! A file system whose device is a file of another file system: one thread is in a transaction of
//! both.

use std::io::IoSlice;
use std::sync::Arc;

use larder::device::{Device, DeviceError};
use larder::{File, OpenOptions};

use crate::on_memory::{assert_has, file_system};

const IMAGE_BYTES: u64 = 128 << 20;

/// A file as a device.
#[derive(Debug)]
struct FileDevice(File);

impl Device for FileDevice {
    fn name(&self) -> &'static str {
        "a file of the outer file system"
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        assert_eq!(self.0.read_at(buf, offset).unwrap(), buf.len());
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let mut at = offset;
        for buf in bufs {
            self.0.write_at(buf, at).unwrap();
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.sync().unwrap();
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.0.punch_hole(offset, len_bytes).unwrap();
        Ok(())
    }

    fn readahead(&self, _: u64, _: u64) {}
}

#[test]
fn a_file_system_lies_in_a_file_of_another() {
    let (outer, root, _) = file_system("outer");
    let (_, _, image) = file_system("inner");
    let file = root.create("/image", 0o600).unwrap();
    let mut piece = vec![0; 1 << 20];
    let used_bytes = image.len_bytes().min(IMAGE_BYTES);
    for offset in (0..used_bytes).step_by(piece.len()) {
        image.read_at(&mut piece, offset).unwrap();
        file.write_at(&piece, offset).unwrap();
    }
    file.set_len(image.len_bytes()).unwrap();
    let open = || {
        let device = Arc::new(FileDevice(file.clone()));
        let options = OpenOptions::new().write(true).commit_interval(None);
        options.open_devices(vec![device]).unwrap()
    };
    let inner = open();
    let inner_root = inner.subvolume("/").unwrap();
    let data = vec![7; 300_000];
    inner_root.create("/file", 0o600).unwrap().write_at(&data, 0).unwrap();
    inner.sync().unwrap();
    drop((inner, inner_root));
    outer.sync().unwrap();
    let found = open().subvolume("/").unwrap().open_file("/file").unwrap();
    assert_has(&found, &data);
}
