//! Scans find every inode once with all its names, in one part or several.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStringExt;

use larder::{Filesystem, OpenOptions, ScannedInode, Subvolume};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, Manifest};

/// The paths of each inode, by subvolume and number, as the kernel shows them.
type Names = BTreeMap<(u64, u64), BTreeSet<Vec<u8>>>;

fn expected(manifest: &Manifest) -> Names {
    let mut names = Names::new();
    for (path, entry) in &manifest.entries {
        let paths = names.entry((entry.subvolume, entry.inode)).or_default();
        paths.insert(path.clone());
    }
    // A directory that stands for a subvolume.
    names.remove(&(0, 2));
    names
}

/// The names that a scan finds, as paths from the top level.
fn names(subvolume: &Subvolume, inode: &ScannedInode) -> BTreeSet<Vec<u8>> {
    let base = subvolume.path().expect("every subvolume has a path");
    let mut paths = subvolume.paths();
    if inode.metadata.inode == 256 {
        return BTreeSet::from([base.into_os_string().into_vec()]);
    }
    let path = |link| base.join(paths.of(link).expect("every directory has a path"));
    inode.links.iter().map(path).map(|path| path.into_os_string().into_vec()).collect()
}

fn found(fs: &Filesystem, parts: usize) -> Names {
    let mut found = Names::new();
    for info in fs.subvolumes() {
        let info = info.expect("all subvolumes can be read");
        if info.is_being_deleted {
            continue;
        }
        let subvolume = fs.subvolume_by_id(info.id).expect("it is listed");
        for part in subvolume.scan_parts(parts).expect("the root can be read") {
            for inode in part {
                let inode = inode.expect("all inodes can be read");
                let number = inode.metadata.inode;
                assert_eq!(
                    inode.metadata,
                    subvolume.inode(number).expect("it was scanned").metadata()
                );
                assert_eq!(inode.links.len(), inode.metadata.nlink as usize, "inode {number}");
                let names = names(&subvolume, &inode);
                assert!(found.insert((info.id, number), names).is_none(), "{number} twice");
            }
        }
    }
    found
}

#[test]
fn scans_find_every_name() {
    let specs = [
        ImageSpec::new("default"),
        ImageSpec::new("nodes-4k").node_size(4 << 10),
        ImageSpec::new("no-extref").without(Feature::ExtendedReferences),
    ];
    for spec in &specs {
        let image = KernelImage::build(spec, &Content::new(11));
        let fs = OpenOptions::new().open(image.devices()).expect("it is sound");
        let expected = expected(image.manifest());
        for parts in [1, 2, 7, 1000] {
            assert!(found(&fs, parts) == expected, "{} in {parts} parts", spec.name());
        }
    }
}

#[test]
fn inodes_know_their_paths() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(12));
    let fs = OpenOptions::new().open(image.devices()).expect("it is sound");
    for ((subvolume, number), paths) in expected(image.manifest()) {
        let subvolume = fs.subvolume_by_id(subvolume).expect("it is in the manifest");
        let base = subvolume.path().expect("every subvolume has a path");
        let inode = subvolume.inode(number).expect("it is in the manifest");
        let own = inode.paths().expect("names can be read").into_iter();
        let own: BTreeSet<Vec<u8>> = own
            .map(|path| if path.as_os_str().is_empty() { base.clone() } else { base.join(path) })
            .map(|path| path.into_os_string().into_vec())
            .collect();
        assert_eq!(own, paths, "inode {number} of subvolume {}", subvolume.id());
    }
}
