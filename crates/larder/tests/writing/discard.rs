//! Freed space is discarded on the devices.

use std::os::unix::fs::MetadataExt;

use larder::{OpenOptions, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};

use super::check;

const FILE_BYTES: usize = 40 << 20;

fn allocated_bytes(image: &KernelImage) -> u64 {
    image.devices().iter().map(|path| 512 * path.metadata().unwrap().blocks()).sum()
}

/// Writes a large file, snapshots it, and deletes first the one and then the other.
fn come_and_go(image: &KernelImage, discard: bool) -> [u64; 3] {
    let options = OpenOptions::new().write(true).discard(discard);
    let fs = options.open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    let file = root.create("large", 0o644).unwrap();
    file.write_at(&vec![3; FILE_BYTES], 0).unwrap();
    drop(file);
    let snapshot = root.snapshot("kept", SnapshotKind::ReadOnly).unwrap();
    let full = allocated_bytes(image);
    root.remove_file("large").unwrap();
    fs.sync().unwrap();
    let shared = allocated_bytes(image);
    let mut data = vec![0; FILE_BYTES];
    snapshot.open_file("large").unwrap().read_at(&mut data, 0).unwrap();
    assert!(data == vec![3; FILE_BYTES]);
    drop(snapshot);
    root.delete_subvolume("kept").unwrap();
    fs.sync().unwrap();
    fs.sync().unwrap();
    drop((root, fs));
    check(image, "coming and going");
    [full, shared, allocated_bytes(image)]
}

#[test]
fn freed_space_is_discarded_if_wanted() {
    let devices = [1 << 30, 1 << 30];
    let spec = ImageSpec::new("discard").devices(&devices);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid0);
    let image = KernelImage::build(&spec, &Content::new(31));
    let slack = 4 << 20;
    let [full, shared, freed] = come_and_go(&image, false);
    assert!(shared >= full && freed >= full, "{full}, {shared}, {freed}");
    let [full, shared, freed] = come_and_go(&image, true);
    assert!(shared + slack >= full, "a snapshot has it: {full}, {shared}");
    assert!(freed + FILE_BYTES as u64 <= full + slack, "{full}, {freed}");
}
