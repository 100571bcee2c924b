//! From addresses of data to files, as btrfs-progs finds them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder::OpenOptions;
use larder_format::item::Extent;
use larder_format::objectid::EXTENT_TREE;
use larder_format::{ItemType, Key};
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, command};
use rustix::fs::ioctl_ficlone;

/// Inode, offset and subvolume.
type Place = (u64, u64, u64);

/// More references than fit into an item.
const FILES: u64 = 1000;

/// Extents that are asked about.
const EXTENTS: usize = 60;

fn btrfs(words: &str, paths: &[&Path]) {
    let words = words.split(' ').map(AsRef::as_ref);
    command::run("btrfs", words.chain(paths.iter().map(|path| path.as_os_str()))).unwrap();
}

/// Data that many files and snapshots share, in leaves that are shared, copied, and moved.
fn fill(mount: &KernelMount) {
    let at = |name: &str| mount.path().join(name);
    btrfs("subvolume create", &[&at("sub")]);
    fs::write(at("sub/original"), vec![7; 1 << 17]).unwrap();
    mount.sync();
    let original = File::open(at("sub/original")).unwrap();
    for number in 0..FILES {
        let copy = File::create(at(&format!("sub/copy{number}"))).unwrap();
        ioctl_ficlone(&copy, &original).unwrap();
    }
    for number in 0..12_u8 {
        fs::write(at(&format!("sub/own{number}")), vec![number; 40_000]).unwrap();
    }
    for number in 0..8_u8 {
        btrfs("subvolume snapshot", &[&at("sub"), &at(&format!("snapshot{number}"))]);
        // Leaves of the source differ from then on, some more each time.
        let changed = File::options().write(true).open(at(&format!("sub/own{number}"))).unwrap();
        changed.write_all_at(&[99; 5000], 8192).unwrap();
        fs::write(at(&format!("snapshot{number}/new")), vec![number; 9000]).unwrap();
        fs::remove_file(at(&format!("sub/copy{number}"))).unwrap();
    }
    btrfs("subvolume snapshot -r", &[&at("snapshot3"), &at("of-snapshot")]);
    mount.sync();
    // Its leaves belong to others from now on.
    btrfs("subvolume delete", &[&at("snapshot3"), &at("snapshot5")]);
    btrfs("subvolume sync", &[mount.path()]);
    drop(original);
}

/// The places that btrfs-progs finds.
fn theirs(mount: &KernelMount, address: u64, of_whole_extent: bool) -> BTreeSet<Place> {
    let whole = if of_whole_extent { "-o " } else { "" };
    let words = format!("inspect-internal logical-resolve {whole}-s 4000000 -P {address}");
    let path = mount.path().as_os_str();
    let said = command::run("btrfs", words.split(' ').map(AsRef::as_ref).chain([path]));
    let place = |line: &str| {
        let number = |word: &str| {
            let mut words = line.split_whitespace().skip_while(|found| *found != word).skip(1);
            words.next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        (number("inode"), number("offset"), number("root"))
    };
    said.unwrap().lines().map(place).collect()
}

fn compare(image: &KernelImage) {
    let fs = OpenOptions::new().open(image.devices()).unwrap();
    let mut extents = Vec::new();
    for item in fs.tree_items(EXTENT_TREE, Key::MIN..=Key::MAX).unwrap().map(Result::unwrap) {
        if item.key().item_type == ItemType::EXTENT_ITEM {
            let extent = Extent::parse(item.key(), item.data()).unwrap();
            extents.extend((!extent.is_tree_block()).then(|| (extent.item.refs.get(), item.key())));
        }
    }
    // From those with the most references on.
    extents.sort_unstable();
    extents.reverse();
    let step = extents.len().div_ceil(EXTENTS);
    let extents = extents.into_iter().step_by(step).map(|(_, key)| key);
    let mount = image.mount("ro,subvolid=5");
    let mut most = 0;
    for extent in extents {
        for (address, of_whole_extent) in [
            (extent.objectid, false),
            (extent.objectid + extent.offset / 2 / 4096 * 4096, false),
            (extent.objectid + extent.offset - 4096, true),
        ] {
            let found = fs.places_of(address, of_whole_extent).unwrap();
            let ours: BTreeSet<Place> =
                found.iter().map(|place| (place.inode, place.offset, place.subvolume)).collect();
            most = most.max(ours.len());
            let theirs = theirs(&mount, address, of_whole_extent);
            assert_eq!(ours, theirs, "{extent} at {address}, whole extent: {of_whole_extent}");
        }
    }
    assert!(most as u64 > 6 * FILES, "an extent had {most} places");
}

#[test]
fn data_is_found_as_btrfs_finds_it() {
    let spec = ImageSpec::new("small-nodes").node_size(4096);
    let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(64)));
    let mount = image.mount("subvolid=5");
    fill(&mount);
    drop(mount);
    compare(&image);
    // Moving the blocks makes references by address.
    let mount = image.mount("subvolid=5");
    btrfs("balance start --full-balance", &[mount.path()]);
    drop(mount);
    compare(&image);
}
