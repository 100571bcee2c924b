//! Comparing sent snapshots with received ones.

use std::path::Path;

use crate::manifest::{Body, Manifest, Timestamp};

/// The inode number of the folder in place of a subvolume that is not in a snapshot.
const EMPTY_SUBVOLUME: u64 = 2;

/// The part of the snapshot at `path` that a stream carries: no inode numbers, times of the inode
/// itself, flags, allocation, or order of names; and no nested subvolumes.
#[track_caller]
pub fn sendable(path: &Path) -> Manifest {
    let mut manifest = Manifest::of_tree(path);
    let nested: Vec<Vec<u8>> = manifest
        .entries
        .iter()
        .filter(|(_, entry)| entry.inode == EMPTY_SUBVOLUME)
        .map(|(path, _)| path.clone())
        .collect();
    manifest.entries.retain(|path, _| !nested.contains(path));
    for (path, entry) in &mut manifest.entries {
        entry.ctime = Timestamp::default();
        entry.otime = Timestamp::default();
        entry.inode = 0;
        entry.subvolume = 0;
        entry.flags = None;
        entry.allocated_bytes = 0;
        match &mut entry.body {
            Body::File { data, .. } => data.clear(),
            Body::Folder { names } => {
                let full = |name: &[u8]| {
                    if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') }
                };
                names.retain(|name| !nested.contains(&full(name)));
                names.sort_unstable();
                entry.size_bytes = 0;
            }
            _ => {}
        }
    }
    manifest
}
