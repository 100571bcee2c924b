//! Data that is read while the data beside it comes and goes. Both have checksums in one item.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder::{OpenOptions, Subvolume};
use larder_mkfs::MkfsOptions;

use super::{as_dyn, make, open};

const FILES: usize = 32;
const ROUNDS: usize = 60;
/// More than is stored inline.
const FILE_BYTES: usize = 4096;

fn name(number: usize) -> String {
    format!("file-{number}")
}

/// Writes the files back together, so that their data lies side by side.
fn create_all(root: &Subvolume) {
    for number in 0..FILES {
        root.write(name(number), vec![number as u8 + 1; FILE_BYTES]).unwrap();
    }
    root.filesystem().sync().unwrap();
}

#[test]
fn data_beside_what_goes_stays_readable() {
    let fs = open(as_dyn(&make(1, &MkfsOptions::default())), OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    for _ in 0..ROUNDS * larder_testkit::effort() as usize {
        create_all(&root);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let last = root.open_file(name(FILES - 1)).unwrap();
                while !is_over.load(Relaxed) {
                    let mut data = vec![0; FILE_BYTES];
                    let read = last.read_at(&mut data, 0).unwrap_or_else(|error| panic!("{error}"));
                    assert!(read == FILE_BYTES && data == [FILES as u8; FILE_BYTES]);
                }
            });
            for number in 0..FILES - 1 {
                root.remove_file(name(number)).unwrap();
                fs.sync().unwrap();
            }
            is_over.store(true, Relaxed);
        });
        root.remove_file(name(FILES - 1)).unwrap();
    }
}
