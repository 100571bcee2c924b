//! Data that is compressed at writeback, data that was compressed before, and data that is
//! overwritten in place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder::{
    Compression, CompressionAlgorithm, Encoded, ErrorKind, Extent, ExtentKind, Filesystem,
    InodeFlags, OpenOptions, SetAttributes, SnapshotKind, WriteCompression, XattrMode,
};
use larder_testkit::{Content, ImageSpec, KernelImage};

use super::model::Player;
use super::view::{assert_same, by_kernel, by_larder};
use super::{check, open};

const SECTOR: usize = 4096;

fn compressing(image: &KernelImage, text: &str, force: bool) -> Filesystem {
    let compression: Compression = text.parse().unwrap();
    let options = OpenOptions::new().write(true);
    let options = options.compression(Some(WriteCompression { compression, force }));
    options.open(image.devices()).unwrap()
}

/// Text-like data: it becomes much smaller.
fn text(len: usize, seed: u64) -> Vec<u8> {
    let words = ["flour ", "butter ", "bread ", "an egg ", "and some salt ", "of rye "];
    let mut state = seed | 1;
    let mut data = Vec::new();
    while data.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        data.extend_from_slice(words[(state >> 33) as usize % words.len()].as_bytes());
    }
    data.truncate(len);
    data
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The extents of a file once all of it is written back.
fn extents(file: &larder::File) -> Vec<Extent> {
    file.sync().unwrap();
    let extents = file.extents_from(0).unwrap().map(Result::unwrap);
    extents.filter(|extent| extent.kind != ExtentKind::Hole).collect()
}

fn read(file: &larder::File) -> Vec<u8> {
    let mut data = vec![1; file.len_bytes() as usize];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    data
}

fn features(fs: &Filesystem, image: &KernelImage) -> String {
    fs.sync().unwrap();
    larder_testkit::oracle::dump_super(&image.devices()[0]).unwrap()
}

#[test]
fn data_is_compressed_as_was_asked_for() {
    for (number, algorithm) in ["zlib:9", "lzo", "zstd:1"].into_iter().enumerate() {
        let image = KernelImage::build(&ImageSpec::new("compressed"), &Content::new(61));
        let fs = compressing(&image, algorithm, false);
        let root = fs.subvolume("/").unwrap();
        let wanted = CompressionAlgorithm::ALL[number];
        let sizes = [1, 2000, 3000, 4096, 5000, 131_072, 131_073, 1_000_000];
        let mut contents = Vec::new();
        for size in sizes {
            let path = format!("text-{size}");
            let file = root.create(&path, 0o644).unwrap();
            file.write_at(&text(size, 5), 0).unwrap();
            contents.push((path, file));
        }
        for (size, (path, file)) in sizes.iter().zip(&contents) {
            let extents = extents(file);
            // A single sector at the end cannot shrink.
            let mut parts = extents.iter().filter(|extent| extent.offset < 131_072);
            let is_compressed = parts.all(|extent| extent.compression == Some(wanted));
            assert!(is_compressed || *size == 1, "{path}: {extents:?}");
            let kind = if *size <= SECTOR { ExtentKind::Inline } else { ExtentKind::Data };
            assert!(extents.iter().all(|extent| extent.kind == kind), "{path}: {extents:?}");
        }
        // Incompressible data is left, and not tried again.
        let file = root.create("noise", 0o644).unwrap();
        file.write_at(&noise(1 << 20, 7), 0).unwrap();
        fs.sync().unwrap();
        assert_eq!(extents(&file).len(), 1);
        let half = [noise(100_000, 9), noise(28_000, 11).repeat(2)].concat();
        file.write_at(&half, 2 << 20).unwrap();
        contents.push(("noise".to_owned(), file));
        // Overwritten, cut and grown.
        let file = root.create("changed", 0o644).unwrap();
        file.write_at(&text(SECTOR, 3), 0).unwrap();
        fs.sync().unwrap();
        file.set_len(20_000).unwrap();
        file.write_at(&text(300_000, 13), 10_000).unwrap();
        fs.sync().unwrap();
        file.write_at(&text(1000, 17), 150_000).unwrap();
        file.punch_hole(40_000, 100_000).unwrap();
        file.set_len(250_001).unwrap();
        contents.push(("changed".to_owned(), file));
        fs.sync().unwrap();
        let contents: Vec<(String, Vec<u8>)> =
            contents.iter().map(|(path, file)| (path.clone(), read(file))).collect();
        let dump = features(&fs, &image);
        let flag = ["", "COMPRESS_LZO", "COMPRESS_ZSTD"][number];
        assert!(dump.contains(flag), "{algorithm}: {dump}");
        let shown = format!("incompat_flags\t\t{:#x}", fs.feature_bits().2);
        assert!(dump.contains(&shown), "{shown}: {dump}");
        drop((root, fs));
        check(&image, algorithm);
        let mount = image.mount("ro");
        for (path, data) in contents {
            assert!(std::fs::read(mount.path().join(&path)).unwrap() == data, "{algorithm} {path}");
        }
    }
}

#[test]
fn files_say_themselves_how_they_are_compressed() {
    let image = KernelImage::build(&ImageSpec::new("properties"), &Content::new(62));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let create = |path: &str, property: Option<&[u8]>| {
        let file = root.create(path, 0o644).unwrap();
        if let Some(value) = property {
            file.set_xattr("btrfs.compression", value, XattrMode::Any).unwrap();
        }
        file.write_at(&text(500_000, 3), 0).unwrap();
        let extents = extents(&file);
        assert!(extents.iter().all(|extent| extent.compression == extents[0].compression));
        extents[0].compression
    };
    assert_eq!(create("nothing", None), None);
    assert_eq!(create("zstd", Some(b"zstd")), Some(CompressionAlgorithm::Zstd));
    assert_eq!(create("lzo", Some(b"lzo")), Some(CompressionAlgorithm::Lzo));
    let compression = CompressionAlgorithm::Zlib.into();
    fs.set_compression(Some(WriteCompression { compression, force: false })).unwrap();
    assert_eq!(create("all", None), Some(CompressionAlgorithm::Zlib));
    assert_eq!(create("own", Some(b"zstd")), Some(CompressionAlgorithm::Zstd));
    assert_eq!(create("none", Some(b"none")), None);
    // With force, everything is tried, and incompressible data stays as it is.
    fs.set_compression(Some(WriteCompression { compression, force: true })).unwrap();
    assert_eq!(create("forced", Some(b"none")), Some(CompressionAlgorithm::Zlib));
    let file = root.create("mixed", 0o644).unwrap();
    let mixed = [noise(300_000, 3), text(300_000, 3), noise(300_000, 5)].concat();
    file.write_at(&mixed, 0).unwrap();
    let kinds: Vec<bool> =
        extents(&file).iter().map(|extent| extent.compression.is_some()).collect();
    assert!(kinds.contains(&true) && kinds.contains(&false), "{kinds:?}");
    assert!(!file.metadata().flags.contains(InodeFlags::NOCOMPRESS));
    fs.set_compression(Some(WriteCompression { compression, force: false })).unwrap();
    file.write_at(&[noise(4, 1), text(20_000, 7), noise(111_068, 3)].concat(), 1 << 20).unwrap();
    fs.sync().unwrap();
    drop((file, root, fs));
    check(&image, "properties");
    let mount = image.mount("ro");
    assert!(std::fs::read(mount.path().join("mixed")).unwrap()[..900_000] == mixed);
    assert!(std::fs::read(mount.path().join("own")).unwrap() == text(500_000, 3));
}

/// Random operations on compressed files, which the kernel changes too.
#[test]
fn both_sides_change_compressed_files() {
    let image = KernelImage::build(&ImageSpec::new("both"), &Content::new(63));
    let mut player = Player::new("played", 63);
    for (round, compression) in ["zstd", "lzo", "zlib"].into_iter().enumerate() {
        let fs = compressing(&image, compression, round % 2 == 0);
        let root = fs.subvolume("/").unwrap();
        if round == 0 {
            root.create_directory("played", 0o755).unwrap();
        }
        player.play(&root, 150);
        root.snapshot(format!("snapshot-{round}"), SnapshotKind::ReadOnly).unwrap();
        player.play(&root, 100);
        fs.sync().unwrap();
        assert_same(&by_larder(&root, "played").unwrap(), &player.model.view(), "larder");
        drop((root, fs));
        check(&image, compression);
        let mount = image.mount("compress-force=zstd");
        assert_same(&by_kernel(&mount.path().join("played")), &player.model.view(), "the kernel");
        kernel_changes(mount.path(), &mut player);
    }
    check(&image, "the last round");
}

/// The kernel writes to files of the model.
fn kernel_changes(root: &Path, player: &mut Player) {
    for (path, data) in player.model.files() {
        let file = File::options().write(true).open(root.join("played").join(path)).unwrap();
        let (at, new) = (data.len() / 3, text(5000, data.len() as u64));
        file.write_all_at(&new, at as u64).unwrap();
        data.resize(data.len().max(at + new.len()), 0);
        data[at..][..new.len()].copy_from_slice(&new);
    }
}

#[test]
fn compressed_data_is_written_as_it_is() {
    let image = KernelImage::build(&ImageSpec::new("encoded"), &Content::new(64));
    let mut contents: Vec<(String, Vec<u8>)> = Vec::new();
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for algorithm in CompressionAlgorithm::ALL {
        let plain = text(120_000, 9);
        let data = compress(algorithm, &plain, larder_format::compression::ExtentKind::Regular);
        let encoded = Encoded {
            algorithm,
            len_bytes: 120_000,
            unencoded_bytes: 120_000,
            unencoded_offset: 0,
        };
        let file = root.create(format!("{algorithm}"), 0o644).unwrap();
        file.write_at(b"short", 0).unwrap();
        file.write_encoded(&data, &encoded, 8192).unwrap();
        // A part of it, further on, and then another part over that.
        let part = Encoded { len_bytes: 40_000, unencoded_offset: 65_536, ..encoded };
        file.write_encoded(&data, &part, 1 << 20).unwrap();
        let part = Encoded { len_bytes: 8192, unencoded_offset: 4096, ..encoded };
        file.write_encoded(&data, &part, (1 << 20) + 4096).unwrap();
        let mut expected = b"short".to_vec();
        expected.resize((1 << 20) + 40_000, 0);
        expected[8192..][..120_000].copy_from_slice(&plain);
        expected[1 << 20..].copy_from_slice(&plain[65_536..105_536]);
        expected[(1 << 20) + 4096..][..8192].copy_from_slice(&plain[4096..12_288]);
        assert!(read(&file) == expected);
        let parts = extents(&file);
        assert_eq!(parts[1].compression, Some(algorithm), "{parts:?}");

        let short = root.create(format!("{algorithm}-inline"), 0o644).unwrap();
        let stream =
            compress(algorithm, &plain[..2500], larder_format::compression::ExtentKind::Inline);
        let whole = Encoded { len_bytes: 2500, unencoded_bytes: 2500, ..encoded };
        short.write_encoded(&stream, &whole, 0).unwrap();
        assert_eq!(extents(&short)[0].kind, ExtentKind::Inline);
        contents.push((format!("{algorithm}"), expected));
        contents.push((format!("{algorithm}-inline"), plain[..2500].to_vec()));

        let refused = [
            (&data[..], Encoded { unencoded_bytes: 119_999, len_bytes: 4096, ..encoded }, 0),
            (&data[..], encoded, 100),
            (&data[..], Encoded { unencoded_offset: 1, len_bytes: 4096, ..encoded }, 0),
            (&data[..], Encoded { len_bytes: 120_001, ..encoded }, 0),
            (&data[..], Encoded { unencoded_bytes: 1 << 20, ..encoded }, 0),
            (&data[..], Encoded { len_bytes: 5000, ..encoded }, 0),
            (&data[..data.len() / 2], encoded, 0),
            (&plain[..], encoded, 0),
            (&[], encoded, 0),
        ];
        for (data, encoded, offset) in refused {
            let error = file.write_encoded(data, &encoded, offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{encoded:?} {offset}");
        }
    }
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "encoded");
    let mount = image.mount("ro");
    for (path, data) in contents {
        assert!(std::fs::read(mount.path().join(&path)).unwrap() == data, "{path}");
    }
}

fn compress(
    algorithm: CompressionAlgorithm,
    plain: &[u8],
    kind: larder_format::compression::ExtentKind,
) -> Vec<u8> {
    let mut compressor = larder_format::compression::Compressor::new(algorithm.into());
    let mut output = vec![0; plain.len()];
    let len = compressor.compress(plain, &mut output, SECTOR as u32, kind).unwrap().unwrap();
    output.truncate(len);
    output
}

/// Files that are overwritten in place, except where snapshots and reflinks share them.
#[test]
fn data_is_overwritten_in_place_unless_it_is_shared() {
    let image = KernelImage::build(&ImageSpec::new("in-place"), &Content::new(65));
    let fs = compressing(&image, "zstd", true);
    let root = fs.subvolume("/").unwrap();
    let mark = |inode: &larder::Inode| {
        let flags = Some(InodeFlags::NODATACOW);
        inode.set_attributes(&SetAttributes { flags, ..Default::default() }).unwrap();
    };
    let folder = root.create_directory("in-place", 0o755).unwrap();
    mark(&folder);
    let file = root.create("in-place/file", 0o644).unwrap();
    let flags = file.metadata().flags;
    assert!(flags.contains(InodeFlags::NODATACOW | InodeFlags::NODATASUM), "{flags:?}");
    let mut expected = text(1_000_000, 1);
    file.write_at(&expected, 0).unwrap();
    let address = |file: &larder::File| extents(file)[0].logical.unwrap();
    let first = address(&file);
    let mut overwrite = |file: &larder::File, at: usize, seed| {
        let data = noise(50_000, seed);
        file.write_at(&data, at as u64).unwrap();
        expected[at..][..data.len()].copy_from_slice(&data);
        fs.sync().unwrap();
        assert!(read(file) == expected);
        extents(file).len()
    };
    assert_eq!(overwrite(&file, 100_001, 3), 1);
    assert_eq!((overwrite(&file, 0, 5), address(&file)), (1, first));
    let snapshot = root.snapshot("snapshot", SnapshotKind::ReadOnly).unwrap();
    let then = read(&snapshot.open_file("in-place/file").unwrap());
    assert_eq!(overwrite(&file, 0, 7), 2);
    let second = address(&file);
    assert_ne!(second, first);
    // The copies belong to this file alone again.
    assert_eq!((overwrite(&file, 0, 9), address(&file)), (2, second));
    let copy = root.create("in-place/copy", 0o644).unwrap();
    copy.clone_range(&file, 0, 0, 0).unwrap();
    let copied = read(&copy);
    overwrite(&file, 0, 11);
    assert_ne!(address(&file), second);
    assert!(read(&copy) == copied);
    assert!(read(&snapshot.open_file("in-place/file").unwrap()) == then);
    drop((file, copy, folder, snapshot, root, fs));
    check(&image, "writing in place");
    let mount = image.mount("");
    assert!(std::fs::read(mount.path().join("in-place/file")).unwrap() == expected);
    assert!(std::fs::read(mount.path().join("in-place/copy")).unwrap() == copied);
    assert!(std::fs::read(mount.path().join("snapshot/in-place/file")).unwrap() == then);
}
