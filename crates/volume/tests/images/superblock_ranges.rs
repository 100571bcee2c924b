//! The kernel avoids superblock copies where we do: in a full file system nothing else is left.
//!
//! (The free space tree does not show this: it counts these ranges as free.)
//!
//! Needs root, loop devices and a kernel with btrfs.

use std::path::Path;

use larder_format::{BlockGroupFlags, ItemType, Logical, objectid};
use larder_testkit::command::run;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};
use larder_volume::{Chunk, OpenOptions, Volume};

use crate::support::{MIB, items_of, open};

/// Allocates all space for data, in ever smaller pieces.
fn fill(root: &Path) {
    let mut number = 0;
    let mut len_bytes = 64 * MIB;
    while len_bytes >= 4096 {
        let file = root.join(format!("filler-{number}"));
        let arguments = ["-l".into(), len_bytes.to_string(), file.display().to_string()];
        match run("fallocate", arguments) {
            Ok(_) => number += 1,
            Err(error) => {
                assert!(error.to_string().contains("No space left on device"), "{error}");
                let _ = std::fs::remove_file(&file);
                len_bytes /= 2;
            }
        }
    }
}

/// The ranges of a chunk that no extent covers.
fn gaps(volume: &Volume, chunk: &Chunk) -> Vec<(Logical, u64)> {
    let mut gaps = Vec::new();
    let mut next = chunk.logical().0;
    let extents = items_of(volume, objectid::EXTENT_TREE);
    let inside = extents.iter().filter(|(key, _)| {
        key.item_type == ItemType::EXTENT_ITEM && chunk.contains(Logical(key.objectid))
    });
    let ranges = inside.map(|(key, _)| (key.objectid, key.offset));
    for (start, len_bytes) in ranges.chain([(chunk.end().0, 0)]) {
        if next < start {
            gaps.push((Logical(next), start - next));
        }
        next = start + len_bytes;
    }
    gaps
}

#[test]
fn only_superblocks_are_left_in_a_full_file_system() {
    for (profile, devices) in [
        (Profile::Single, 1),
        (Profile::Dup, 1),
        (Profile::Raid0, 3),
        (Profile::Raid1, 2),
        (Profile::Raid10, 4),
        (Profile::Raid5, 3),
        (Profile::Raid6, 4),
    ] {
        let metadata = if devices == 1 { Profile::Single } else { Profile::Raid1 };
        let spec = ImageSpec::new(profile.name())
            .devices(&vec![256 * MIB; devices])
            .profiles(profile, metadata);
        let image = KernelImage::build(&spec, &Content::new(1));
        let mount = image.mount("");
        fill(mount.path());
        drop(mount);
        let volume = open(image.devices(), &OpenOptions::default());
        let chunks = volume.chunks();
        let data = chunks.iter().filter(|chunk| chunk.flags().contains(BlockGroupFlags::DATA));
        let mut left_out = 0;
        for chunk in data {
            let ranges = chunk.superblock_ranges();
            left_out += ranges.len();
            assert_eq!(ranges, gaps(&volume, chunk), "{profile:?}: {chunk:?}");
        }
        assert!(left_out > 0, "{profile:?}: some data chunk covers 64 MiB of a device");
    }
}
