//! The kernel reads what is written here, from every combination of devices that must suffice.
//!
//! Needs root, loop devices and a kernel with btrfs.

use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Profile};
use larder_volume::OpenOptions;

use crate::support::{self, MIB, choices, extents_of, kernel_file, open, without};

const FILE: &str = "data/noise-1048576";

/// Overwrites ranges of a file without checksums in place, and makes the kernel read the file back,
/// also without devices, so that it must use the new parity.
#[track_caller]
fn overwritten(profile: Profile, devices: usize) {
    let spec = ImageSpec::new(format!("overwritten-{}-{devices}", profile.name()))
        .devices(&vec![256 * MIB; devices])
        .profiles(profile, profile)
        .mount_option("nodatasum");
    let image = KernelImage::build(&spec, &Content::new(3));
    let (inode, mut wanted) = kernel_file(image.mount("ro").path(), FILE);
    let volume = open(image.devices(), &OpenOptions { write: true, ..OpenOptions::default() });
    // Sectors, pieces across stripes and rows, and more than some full stripes.
    for (number, (start, len)) in
        [(0, 4096), (61440, 8192), (126_976, 139_264), (300 << 10, 600 << 10)]
            .into_iter()
            .enumerate()
    {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 13 + number * 50) as u8).collect();
        write_in_file(&extents_of(&volume, inode), start, &bytes, |logical, part| {
            volume.write(logical, part).expect("it writes");
        });
        wanted[start..start + len].copy_from_slice(&bytes);
    }
    volume.flush().expect("it flushes");
    drop(volume);
    for losses in 0..=profile.tolerated_losses() {
        for lost in choices(devices, losses) {
            let left = without(image.devices(), &lost);
            let mount = KernelMount::open(&left, "ro,degraded");
            let (_, found) = kernel_file(mount.path(), FILE);
            assert!(found == wanted, "{profile:?} without {lost:?}: the kernel reads otherwise");
        }
    }
}

/// Splits a write of a range of a file over its extents.
fn write_in_file(
    extents: &[support::Extent],
    start: usize,
    bytes: &[u8],
    mut write: impl FnMut(larder_format::Logical, &[u8]),
) {
    let mut written = 0;
    for &(offset, logical, len_bytes) in extents {
        let from = (offset as usize).max(start);
        let to = ((offset + len_bytes) as usize).min(start + bytes.len());
        if from < to {
            let logical = larder_format::Logical(logical.0 + (from as u64 - offset));
            write(logical, &bytes[from - start..to - start]);
            written += to - from;
        }
    }
    assert_eq!(written, bytes.len(), "the extents cover the range");
}

#[test]
fn mirrors_and_stripes() {
    overwritten(Profile::Dup, 1);
    overwritten(Profile::Raid0, 3);
    overwritten(Profile::Raid1c3, 3);
    overwritten(Profile::Raid10, 4);
}

#[test]
fn one_parity() {
    overwritten(Profile::Raid5, 2);
    overwritten(Profile::Raid5, 3);
    overwritten(Profile::Raid5, 4);
}

#[test]
fn two_parities() {
    overwritten(Profile::Raid6, 3);
    overwritten(Profile::Raid6, 5);
}
