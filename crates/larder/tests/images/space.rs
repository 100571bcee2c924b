//! Information about a file system as a whole: space, names, devices, counters.

use larder::{Filesystem, OpenOptions, SpaceKind};
use larder_testkit::{Content, Event, ImageSpec, KernelImage, Profile, oracle};

fn open(image: &KernelImage) -> Filesystem {
    OpenOptions::new().open(image.devices()).expect("it is sound")
}

/// The lines of `btrfs filesystem df`.
fn df(fs: &Filesystem) -> Vec<String> {
    let spaces = fs.space().expect("block groups can be read");
    let line = |space: &larder::Space| {
        let kind = match space.kind {
            SpaceKind::Data => "Data",
            SpaceKind::System => "System",
            SpaceKind::Metadata => "Metadata",
            SpaceKind::DataAndMetadata => "Data+Metadata",
        };
        let profile = space.profile.expect("one profile").name();
        let name = if profile == "single" { profile.to_owned() } else { profile.to_uppercase() };
        format!("{kind}, {name}: total={}, used={}", space.total_bytes, space.used_bytes)
    };
    spaces.iter().map(line).collect()
}

#[test]
fn space_is_as_the_kernel_counts_it() {
    let specs = [
        ImageSpec::new("default"),
        ImageSpec::new("mixed").devices(&[128 << 20]).mixed().node_size(4 << 10),
        ImageSpec::new("raid").devices(&[256 << 20; 3]).profiles(Profile::Raid5, Profile::Raid1c3),
    ];
    for spec in &specs {
        let image = KernelImage::build(spec, &Content::new(61));
        let own = df(&open(&image));
        let theirs = oracle::filesystem_df(&image.mount("ro")).expect("btrfs-progs tells it");
        // The global reserve exists only in a mounted kernel.
        let is_on_disk = |line: &&str| !line.starts_with("GlobalReserve") && !line.is_empty();
        assert_eq!(own, theirs.lines().filter(is_on_disk).collect::<Vec<_>>(), "{}", spec.name());
    }
}

#[test]
fn a_file_system_has_an_identity() {
    let spec = ImageSpec::new("labelled")
        .label("bread and butter")
        .devices(&[256 << 20, 300 << 20])
        .profiles(Profile::Raid1, Profile::Raid1)
        .then(Event::ChangeFsid);
    let image = KernelImage::build(&spec, &Content::new(62));
    let fs = open(&image);
    assert_eq!(fs.label(), "bread and butter");
    assert_ne!(fs.uuid(), fs.metadata_uuid());
    let super_dump = oracle::dump_super(&image.devices()[0]).expect("btrfs-progs tells it");
    let field = |name: &str| {
        let line = super_dump.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(1)).expect("it is told").to_owned()
    };
    assert_eq!(fs.uuid().to_string(), field("fsid"));
    assert_eq!(fs.metadata_uuid().to_string(), field("metadata_uuid"));
    assert_eq!(fs.generation().to_string(), field("generation"));
    assert_eq!(fs.used_bytes().to_string(), field("bytes_used"));
    let sizes: Vec<_> = fs.devices().iter().map(|device| (device.id, device.total_bytes)).collect();
    assert_eq!(sizes, [(1, 256 << 20), (2, 300 << 20)]);
    assert!(!fs.needs_log_replay());
}

#[test]
fn a_crash_is_told() {
    let spec = ImageSpec::new("power-cut").power_cut();
    let image = KernelImage::build(&spec, &Content::new(63));
    let fs = open(&image);
    assert!(fs.needs_log_replay());
    // A file that was deleted while it was open is in the tree without a name.
    let orphans = fs
        .subvolume("/")
        .expect("there is a top level")
        .scan()
        .map(|inode| inode.expect("all can be read"))
        .filter(|inode| inode.links.is_empty());
    assert_eq!(orphans.filter(|inode| inode.metadata.nlink == 0).count(), 20);
}
