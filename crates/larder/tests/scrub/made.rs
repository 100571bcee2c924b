//! A file system with everything that a scrub meets, on image files, and damage for it.

use std::path::PathBuf;

use larder::mkfs::{MkfsOptions, mkfs};
use larder::{
    AllocateMode, Filesystem, OpenOptions, Profile, SnapshotKind, WriteCompression, WritePolicy,
    check,
};
use larder_format::Logical;
use larder_format::item::RootItem;
use larder_testkit::{Scratch, damage, oracle, sparse_file::sparse_copy};

/// The file system, and where its content is.
pub(crate) struct Made {
    _scratch: Scratch,
    pub(crate) files: Vec<PathBuf>,
    /// Logical addresses of data with checksums, of compressed data, of data without checksums, of
    /// preallocated space, and of a tree block of a snapshot.
    pub(crate) data: u64,
    pub(crate) compressed: u64,
    pub(crate) plain: u64,
    pub(crate) preallocated: u64,
    pub(crate) block: u64,
}

pub(crate) const LEN: usize = 1 << 20;
pub(crate) const SECTOR: u64 = 4096;

pub(crate) fn options() -> OpenOptions {
    OpenOptions::new().commit_interval(None)
}

fn logical_of(fs: &Filesystem, path: &str) -> u64 {
    let file = fs.subvolume("/").unwrap().open_file(path).unwrap();
    let mut extents = file.extents_from(0).unwrap();
    extents.next().unwrap().unwrap().logical.unwrap()
}

impl Made {
    pub(crate) fn new(data: Profile, metadata: Profile, devices: usize) -> Self {
        println!("data {data}, metadata {metadata} on {devices}");
        let scratch = Scratch::new();
        let files: Vec<PathBuf> =
            (0..devices).map(|n| scratch.sparse_file(&format!("device-{n}"), 256 << 20)).collect();
        let profiles = MkfsOptions {
            data_profile: Some(data),
            metadata_profile: Some(metadata),
            ..MkfsOptions::default()
        };
        mkfs(&files, &profiles).unwrap();
        let fs = options().write(true).open(&files).unwrap();
        let top = fs.subvolume("/").unwrap();
        let content: Vec<u8> = (0..LEN as u32 / 4).flat_map(|n| (n * 7919).to_le_bytes()).collect();
        top.write("data", &content).unwrap();
        let file = top.open_file("data").unwrap();
        fs.sync().unwrap();
        let copy = top.create("reflink", 0o644).unwrap();
        copy.clone_range(&file, 0, LEN as u64, 0).unwrap();
        let room = top.create("preallocated", 0o644).unwrap();
        room.allocate(0, LEN as u64, AllocateMode::Grow).unwrap();
        top.write("inline", b"short").unwrap();
        let sub = top.create_subvolume("sub").unwrap();
        for number in 0..300 {
            sub.write(format!("small-{number}"), vec![b'x'; 100]).unwrap();
        }
        fs.sync().unwrap();
        let compression = WriteCompression { compression: "zstd".parse().unwrap(), force: true };
        fs.set_compression(Some(compression)).unwrap();
        top.write("compressed", vec![b'y'; LEN]).unwrap();
        fs.sync().unwrap();
        fs.set_compression(None).unwrap();
        fs.set_write_policy(WritePolicy { datacow: false, ..WritePolicy::default() }).unwrap();
        top.write("plain", &content).unwrap();
        fs.sync().unwrap();
        top.snapshot("snapshot", SnapshotKind::ReadOnly).unwrap();
        fs.sync().unwrap();
        drop((top, file, copy, room, sub));
        fs.close().unwrap();
        let fs = options().open(&files).unwrap();
        let [data, compressed, plain, preallocated] =
            ["data", "compressed", "plain", "preallocated"].map(|path| logical_of(&fs, path));
        let sub = fs.subvolume("/sub").unwrap().id();
        let block = Self::leaf_of(&fs, sub);
        Self { _scratch: scratch, files, data, compressed, plain, preallocated, block }
    }

    /// A block of a subvolume that no mount reads.
    fn leaf_of(fs: &Filesystem, subvolume: u64) -> u64 {
        let (_, item) = fs.root_item(subvolume).unwrap().unwrap();
        let item: &RootItem = &item;
        let root = item.bytenr.get();
        let expected = larder_volume::BlockExpectation::default();
        let mut bytes = vec![0; fs.node_bytes() as usize];
        fs.volume().read_tree_block(Logical(root), &expected, &mut bytes).unwrap();
        let node = larder_format::Node::parse(&bytes).unwrap();
        node.key_pointers()[1].blockptr().0
    }

    /// An independent copy of its devices.
    pub(crate) fn copied(&self, name: &str) -> Vec<PathBuf> {
        let copy = |file: &PathBuf| {
            let to = file.with_extension(name);
            sparse_copy(file, &to).unwrap();
            to
        };
        self.files.iter().map(copy).collect()
    }

    /// Where copies of an address are: device ids and addresses on them.
    pub(crate) fn places(&self, logical: u64) -> Vec<(u64, u64)> {
        let fs = options().open(&self.files).unwrap();
        let ranges = fs.volume().map(Logical(logical), SECTOR).unwrap();
        ranges[0].mirrors.iter().map(|at| (at.devid, at.physical.0)).collect()
    }
}

/// Damages a sector of a device.
pub(crate) fn spoil(files: &[PathBuf], (device, physical): (u64, u64)) {
    damage::invert(&files[device as usize - 1], physical..physical + 16).unwrap();
}

/// The bytes of a sector of a device.
pub(crate) fn sector(files: &[PathBuf], (device, physical): (u64, u64)) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; SECTOR as usize];
    let file = std::fs::File::open(&files[device as usize - 1]).unwrap();
    file.read_exact_at(&mut bytes, physical).unwrap();
    bytes
}

/// Whether a profile keeps each byte more than once.
pub(crate) fn has_copies(profile: Profile) -> bool {
    profile.copies() > 1
}

/// Both checkers call it sound.
#[track_caller]
pub(crate) fn assert_sound(files: &[PathBuf]) {
    let options = check::Options { check_data_csum: true, ..check::Options::default() };
    let report = check::check(files, &options).unwrap();
    assert!(report.is_clean(), "{report}");
    oracle::check(files, true).unwrap();
}
