//! Images in memory, for crashes and faults.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder::device::{Device, MemoryDevice};

const PIECE_BYTES: usize = 64 << 10;

/// Reads an image file into memory; what is zero stays a hole.
pub(crate) fn load(file: &Path) -> MemoryDevice {
    let source = File::open(file).unwrap();
    let len_bytes = source.metadata().unwrap().len();
    let device = MemoryDevice::new("memory", len_bytes);
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..len_bytes).step_by(PIECE_BYTES) {
        source.read_exact_at(&mut piece, offset).unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(&piece, offset).unwrap();
        }
    }
    device
}
