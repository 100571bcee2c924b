//! Reading pieces of files, seeking data and holes, and errors for bad data.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use larder::device::{Access, FileDevice};
use larder::{ErrorKind, ExtentKind, File, FileType, Filesystem, OpenOptions, Subvolume};
use larder_format::Logical;
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, damage};
use larder_volume::Volume;
use rustix::fs::{SeekFrom as RawSeek, seek};

/// Longer files are left out here: reading all of a terabyte takes too long.
const LONGEST_BYTES: u64 = 4 << 20;

fn open(image: &KernelImage) -> Filesystem {
    OpenOptions::new().open(image.devices()).expect("it is sound")
}

fn top(fs: &Filesystem) -> Subvolume {
    fs.subvolume("/").expect("there is a top level")
}

/// Calls `visit` with each regular file of the top level that is not too long, here and there.
fn for_each_file(image: &KernelImage, mut visit: impl FnMut(&Path, &File, &fs::File)) {
    let mount = image.mount("ro,noatime");
    let top = top(&open(image));
    let mut paths = top.paths();
    let mut count = 0;
    for inode in top.scan().map(|inode| inode.expect("all can be read")) {
        let metadata = &inode.metadata;
        if metadata.file_type != FileType::Regular || metadata.size_bytes > LONGEST_BYTES {
            continue;
        }
        let path = paths.of(&inode.links[0]).expect("it has a path");
        let theirs = fs::File::open(mount.path().join(&path)).expect("the kernel opens it");
        visit(&path, &top.open_file(&path).expect("it is a file"), &theirs);
        count += 1;
    }
    assert!(count > 100, "only {count} files were compared");
}

fn specs() -> Vec<ImageSpec> {
    vec![
        ImageSpec::new("default"),
        ImageSpec::new("zstd-forced").mount_option("compress-force=zstd"),
        ImageSpec::new("lzo").mount_option("compress=lzo").without(Feature::NoHoles),
        ImageSpec::new("nodatasum").mount_option("nodatasum"),
    ]
}

#[test]
fn pieces_of_any_size_and_place_are_read() {
    for spec in specs() {
        let image = KernelImage::build(&spec, &Content::new(41));
        for_each_file(&image, |path, file, theirs| {
            let mut expected = Vec::new();
            (&mut &*theirs).read_to_end(&mut expected).expect("the kernel reads it");
            let mut whole = vec![0xAA; expected.len() + 10];
            let len = file.read_at(&mut whole, 0).expect("it can be read");
            assert!(whole[..len] == expected, "{} as a whole", path.display());
            for (start, len) in pieces(expected.len()) {
                let mut piece = vec![0xAA; len];
                let read = file.read_at(&mut piece, start as u64).expect("it can be read");
                let expected = expected.get(start..).unwrap_or(&[]);
                let expected = &expected[..len.min(expected.len())];
                let is_same = piece[..read] == *expected;
                assert!(is_same, "{}: {len} bytes from {start}", path.display());
            }
        });
    }
}

/// Pieces around the places where an extent begins or ends: starts and lengths.
fn pieces(len: usize) -> Vec<(usize, usize)> {
    let mut pieces = vec![(len, 1), (len + 5000, 10), (len.saturating_sub(1), 3)];
    for edge in [0, 4096, 8192, 131_072, len / 2] {
        for start in [edge.saturating_sub(1), edge, edge + 1] {
            pieces.extend([1, 4095, 4096, 4097, 20_000].map(|len| (start, len)));
        }
    }
    pieces.push((1, 700_001));
    pieces
}

#[test]
fn readers_go_through_a_file() {
    let image = KernelImage::build(
        &ImageSpec::new("zlib").mount_option("compress=zlib"),
        &Content::new(42),
    );
    for_each_file(&image, |path, file, theirs| {
        let mut expected = Vec::new();
        (&mut &*theirs).read_to_end(&mut expected).expect("the kernel reads it");
        let mut reader = file.cursor();
        let mut found = Vec::new();
        reader.read_to_end(&mut found).expect("it can be read");
        assert!(found == expected, "{}", path.display());
        let middle = expected.len() / 2;
        let from_end = SeekFrom::End(-((expected.len() - middle) as i64));
        assert_eq!(reader.seek(from_end).expect("it is in the file"), middle as u64);
        found.clear();
        reader.read_to_end(&mut found).expect("it can be read");
        assert!(found == expected[middle..], "{} from {middle}", path.display());
    });
}

#[test]
fn data_and_holes_are_where_the_kernel_has_them() {
    for spec in specs() {
        let image = KernelImage::build(&spec, &Content::new(43));
        for_each_file(&image, |path, file, theirs| {
            let len = file.len_bytes();
            for offset in [0, 1, 4095, 4096, 10_000, len / 2, len.saturating_sub(1), len, len + 1] {
                let here = [file.seek_data(offset), file.seek_hole(offset)];
                let there = [RawSeek::Data(offset), RawSeek::Hole(offset)];
                for (here, there) in here.into_iter().zip(there) {
                    let here = here.map_err(|error| error.errno());
                    let there = seek(theirs, there).map_err(rustix::io::Errno::raw_os_error);
                    assert_eq!(here, there, "{} from {offset}", path.display());
                }
            }
        });
    }
}

#[test]
fn extents_cover_a_file_without_gaps() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(44));
    let mut kinds = Vec::new();
    for_each_file(&image, |path, file, _| {
        let mut position = 0;
        for extent in file.extents_from(0).expect("it is a file") {
            let extent = extent.expect("it can be read");
            assert_eq!(extent.offset, position, "{}", path.display());
            assert!(extent.len_bytes > 0, "{}", path.display());
            position += extent.len_bytes;
            kinds.push(extent.kind);
        }
        assert!(position >= file.len_bytes(), "{}", path.display());
    });
    for kind in [ExtentKind::Hole, ExtentKind::Inline, ExtentKind::Preallocated, ExtentKind::Data] {
        assert!(kinds.contains(&kind), "there is no {kind:?}");
    }
}

#[test]
fn bad_data_is_an_error_that_names_its_place() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(45));
    let open_file = || top(&open(&image)).open_file("data/noise-131073").expect("it is there");
    let extents: Result<Vec<_>, _> = open_file().extents_from(0).expect("it is a file").collect();
    let logical = extents.expect("they can be read")[0].logical.expect("it is on disk");
    let physical = physical_of(&image, logical);
    damage::invert(&image.devices()[0], physical + 8192..physical + 8193).expect("it is written");
    let file = open_file();
    let mut buf = vec![0; file.len_bytes() as usize];
    let error = file.read_at(&mut buf, 0).expect_err("a sector is bad");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let place = format!("subvolume 5, inode {}, offset 0", file.number());
    assert!(error.to_string().contains(&place), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    // The data around it is still there.
    assert_eq!(file.read_at(&mut buf[..8192], 0).expect("these are sound"), 8192);
    let rest = file.read_at(&mut buf, 12288).expect("these are sound");
    assert_eq!(rest as u64, file.len_bytes() - 12288);
}

/// The address on the only device of the data at `logical`.
fn physical_of(image: &KernelImage, logical: u64) -> u64 {
    let device = FileDevice::open(&image.devices()[0], Access::ReadOnly).expect("it is a file");
    let volume = Volume::open(vec![Arc::new(device)], &larder_volume::OpenOptions::default())
        .expect("it is sound");
    let ranges = volume.map(Logical(logical), 4096).expect("a chunk holds it");
    ranges[0].mirrors[0].physical.0
}

#[test]
fn only_files_are_read() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(46));
    let top = top(&open(&image));
    let kind = |path: &str| top.open_file(path).map(|_| ()).expect_err("it is no file").kind();
    assert_eq!(kind("data"), ErrorKind::IsADirectory);
    assert_eq!(kind("links/fifo"), ErrorKind::InvalidInput);
    assert_eq!(kind("links/nothing"), ErrorKind::NotFound);
    let message = top.open_file("links/fifo").expect_err("it is no file").to_string();
    assert_eq!(message, "links/fifo: not a regular file");
    let error = top.lookup("data").expect("it is there").xattr("user.nothing");
    assert_eq!(error.expect_err("there is none").kind(), ErrorKind::NoSuchAttribute);
}
