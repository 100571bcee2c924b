//! The cached extents of files are those of the trees: files are changed in all ways and read twice
//! after each change, first by searching and then from the cache.

use larder::{
    AllocateMode, CompressionAlgorithm, File, FindExtents, InodeFlags, OpenOptions, SetAttributes,
    SnapshotKind, Tuning, WriteCompression,
};
use larder_testkit::{Content, ImageSpec, KernelImage, Scale};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{check, open};

const SECTOR: u64 = 4096;
/// Files stay about as long.
const LEN: u64 = 64 * SECTOR;

/// A file and its expected content.
pub(super) struct Known {
    pub(super) file: File,
    pub(super) data: Vec<u8>,
}

impl Known {
    /// Changes the file in a random way.
    fn change(&mut self, random: &mut StdRng) {
        let start = random.random_range(0..LEN);
        let len = random.random_range(1..=8 * SECTOR);
        let end = (start + len) as usize;
        let within = (start as usize).min(self.data.len())..end.min(self.data.len());
        match random.random_range(0..9) {
            0..4 => {
                let fill = random.random::<u8>();
                self.file.write_at(&vec![fill; len as usize], start).unwrap();
                self.data.resize(self.data.len().max(end), 0);
                self.data[start as usize..end].fill(fill);
            }
            4 => {
                self.file.set_len(start).unwrap();
                self.data.resize(start as usize, 0);
            }
            5 => {
                self.file.punch_hole(start, len).unwrap();
                self.data[within].fill(0);
            }
            6 => {
                self.file.zero_range(start, len, AllocateMode::KeepSize).unwrap();
                self.data[within].fill(0);
            }
            7 => {
                self.file.allocate(start, len, AllocateMode::Grow).unwrap();
                self.data.resize(self.data.len().max(end), 0);
            }
            _ => self.file.sync().unwrap(),
        }
    }

    /// Shares a range of another file.
    fn share(&mut self, other: &Self, random: &mut StdRng) {
        let sectors = other.data.len() as u64 / SECTOR;
        if sectors == 0 {
            return;
        }
        let from = random.random_range(0..sectors) * SECTOR;
        let len = random.random_range(1..=(sectors - from / SECTOR).min(8)) * SECTOR;
        let to = random.random_range(0..LEN / SECTOR) * SECTOR;
        let (source, end) = (from as usize..(from + len) as usize, (to + len) as usize);
        let is_equal = self.data.get(to as usize..end) == Some(&other.data[source.clone()]);
        if end <= self.data.len() && random.random() {
            let shared = self.file.dedupe_range(&other.file, from, len, to).unwrap();
            assert_eq!(shared.is_some(), is_equal);
            return;
        }
        self.file.clone_range(&other.file, from, len, to).unwrap();
        self.data.resize(self.data.len().max(end), 0);
        self.data[to as usize..end].copy_from_slice(&other.data[source]);
    }

    /// Reads pieces and all of the file, twice.
    fn check(&self, random: &mut StdRng, what: &str) {
        for _ in 0..4 {
            let start = random.random_range(0..LEN);
            let mut buf = vec![0xaa; random.random_range(1..3 * SECTOR) as usize];
            let len = self.file.read_at(&mut buf, start).unwrap();
            let data = self.data.get(start as usize..).unwrap_or_default();
            let expected = &data[..data.len().min(buf.len())];
            assert!(buf[..len] == *expected, "{what}: from {start}");
        }
        for _ in 0..2 {
            let mut all = vec![0xaa; self.data.len() + 10];
            let len = self.file.read_at(&mut all, 0).unwrap();
            let first = all.iter().zip(&self.data).position(|(seen, expected)| seen != expected);
            assert!(all[..len] == self.data, "{what}: {len} bytes, at {first:?}");
        }
    }
}

#[test]
fn cached_extents_are_true() {
    let content = Content::new(91).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("extents"), &content);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(91));
    let in_place = SetAttributes { flags: Some(InodeFlags::NODATACOW), ..Default::default() };
    let mut files: Vec<Known> = (0..4)
        .map(|number| {
            let file = root.create(format!("file-{number}"), 0o644).unwrap();
            if number >= 2 {
                file.set_attributes(&in_place).unwrap();
            }
            Known { file, data: Vec::new() }
        })
        .collect();
    for round in 0..600 {
        let number = random.random_range(0..files.len());
        if random.random_range(0..5) == 0 {
            // Those that both have checksums, or both have none.
            let other = number ^ 1;
            let pair = files.get_disjoint_mut([number, other]).unwrap();
            let [file, other] = pair;
            file.share(other, &mut random);
        } else {
            files[number].change(&mut random);
        }
        for file in &files {
            file.check(&mut random, &format!("round {round}, file {number}"));
        }
        if round % 60 == 0 {
            let algorithm = CompressionAlgorithm::Zstd.into();
            let compression = WriteCompression { compression: algorithm, force: true };
            fs.set_compression((round % 120 == 0).then_some(compression)).unwrap();
            root.snapshot(format!("snapshot-{round}"), SnapshotKind::ReadOnly).unwrap();
        }
    }
    let stats = fs.stats().extents;
    assert!(stats.entries > 0 && stats.learned > stats.entries, "{stats:?}");
    let expected: Vec<Vec<u8>> = files.iter().map(|file| file.data.clone()).collect();
    drop(files);
    fs.sync().unwrap();
    assert_eq!(fs.stats().extents.entries, 0, "nobody has a file open");
    drop((root, fs));
    check(&image, "changes of all kinds");
    let mount = image.mount("ro,noatime");
    for (number, expected) in expected.iter().enumerate() {
        let seen = std::fs::read(mount.path().join(format!("file-{number}"))).unwrap();
        assert!(seen == *expected, "file {number}");
    }
}

#[test]
fn a_file_is_searched_once_or_each_time() {
    let content = Content::new(92).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("searched"), &content);
    for (extents, learned) in [(FindExtents::InMemory, 20), (FindExtents::InTrees, 0)] {
        let tuning = Tuning { extents, ..Tuning::default() };
        let fs = OpenOptions::new().write(true).tuning(tuning).open(image.devices()).unwrap();
        let root = fs.subvolume("/").unwrap();
        let file = root.create(format!("{extents:?}"), 0o644).unwrap();
        for number in 0..20 {
            file.write_at(&[number as u8 + 1; SECTOR as usize], number * 2 * SECTOR).unwrap();
        }
        file.sync().unwrap();
        for _ in 0..3 {
            for number in 0..20 {
                let mut byte = [0];
                file.read_at(&mut byte, number * 2 * SECTOR + 5).unwrap();
                assert_eq!(byte, [number as u8 + 1]);
            }
        }
        assert_eq!(fs.stats().extents.learned, learned);
        assert_eq!(fs.stats().extents.entries, learned);
    }
}
