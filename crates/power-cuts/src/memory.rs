//! Images in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_device::{Device, MemoryDevice};

const PIECE_BYTES: usize = 64 << 10;

/// Reads an image file into memory; zeros become holes. Panics on an error.
pub fn load(path: &Path) -> MemoryDevice {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let len_bytes = file.metadata().expect("what is open has a length").len();
    let device = MemoryDevice::new(path.display().to_string(), len_bytes);
    each_piece(len_bytes, |piece, offset| {
        file.read_exact_at(piece, offset).expect("a piece is read");
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(piece, offset).expect("memory takes it");
        }
    });
    device
}

/// Makes `path` an image file with the content of a device; zeros become holes. Panics on an error.
pub fn store(device: &MemoryDevice, path: &Path) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.set_len(device.len_bytes()).expect("there is room for holes");
    store_difference(device, &MemoryDevice::new("zeros", device.len_bytes()), &file);
}

/// Changes a file with the content of `other` to that of `device`.
pub(crate) fn store_difference(device: &MemoryDevice, other: &MemoryDevice, file: &File) {
    device.each_difference(other, |offset, data| {
        file.write_all_at(data, offset).expect("there is room");
    });
}

fn each_piece(len_bytes: u64, mut work: impl FnMut(&mut [u8], u64)) {
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..len_bytes).step_by(PIECE_BYTES) {
        let len = (len_bytes - offset).min(PIECE_BYTES as u64) as usize;
        work(&mut piece[..len], offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_images_are_loaded() {
        let device = MemoryDevice::new("memory", (1 << 20) + 1000);
        for offset in [0, 70_000, (1 << 20) + 900] {
            device.write_at(&[7; 100], offset).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [9; 5000]).unwrap();
        store(&device, file.path());
        let (mut before, mut after) = (vec![0; (1 << 20) + 1000], vec![0; (1 << 20) + 1000]);
        device.read_at(&mut before, 0).unwrap();
        load(file.path()).read_at(&mut after, 0).unwrap();
        assert!(before == after);
        assert!(before == std::fs::read(file.path()).unwrap());
    }

    /// Data that was written, written again and discarded since, and data that both share.
    #[test]
    fn a_difference_turns_one_device_into_the_other() {
        const LEN: usize = (1 << 20) + 1000;
        let before = MemoryDevice::new("memory", LEN as u64);
        for offset in [0, 70_000, 300_000, LEN as u64 - 100] {
            before.write_at(&[7; 100], offset).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        store(&before, file.path());
        let after = before.snapshot();
        after.write_at(&[8; 50], 70_010).unwrap();
        after.write_at(&[9; 50], 600_000).unwrap();
        after.write_at(&[9; 50], LEN as u64 - 50).unwrap();
        after.discard(200_000, 200_000).unwrap();
        store_difference(&after, &before, file.as_file());
        let mut expected = vec![0; LEN];
        after.read_at(&mut expected, 0).unwrap();
        assert!(std::fs::read(file.path()).unwrap() == expected);
        let mut parts = Vec::new();
        after.each_difference(&before, |offset, _| parts.push(offset));
        assert!(parts.iter().all(|offset| *offset >= 16_384), "shared data is skipped");
        assert_eq!(parts.len(), 4, "{parts:?}");
    }
}
