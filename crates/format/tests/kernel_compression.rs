//! The kernel as oracle for compressed extents, in both directions: Larder decodes extents of the
//! kernel, and the kernel reads extents of Larder. Needs root, loop devices, btrfs-progs and a
//! kernel with btrfs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_format::compression::{
    Algorithm, Compression, Compressor, ExtentKind, MAX_UNCOMPRESSED_BYTES, decompress,
};

const SECTOR_BYTES: u32 = 4096;

/// Fixed parts of a leaf and of a file extent item, in bytes.
const NODE_HEADER_BYTES: u64 = 101;
const FILE_EXTENT_HEAD_BYTES: u64 = 21;

/// Runs a program to its end and returns its standard output.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    feeder.join().unwrap().unwrap();
    output.stdout
}

/// A small btrfs image in its own folder in memory, removed when dropped.
struct Image {
    folder: PathBuf,
}

/// A mounted image; unmounted when dropped.
struct Mount<'a>(&'a Image);

impl Image {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from("/dev/shm/larder-format")
            .join(format!("compression-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("mount")).unwrap();
        let image = Self { folder };
        File::create(image.path()).unwrap().set_len(256 << 20).unwrap();
        let path = image.path();
        run("mkfs.btrfs", &["-q", "-d", "single", "-m", "single", path.to_str().unwrap()], b"");
        image
    }

    fn path(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn mount(&self, options: &str) -> Mount<'_> {
        let (image, target) = (self.path(), self.folder.join("mount"));
        let options = format!("loop,{options}");
        let paths = [image.to_str().unwrap(), target.to_str().unwrap()];
        run("mount", &["-t", "btrfs", "-o", &options, paths[0], paths[1]], b"");
        Mount(self)
    }

    fn read_at(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        File::open(self.path()).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        file.sync_all().unwrap();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        // Fails while another test uses it.
        let _ = fs::remove_dir(self.folder.parent().unwrap());
    }
}

impl Mount<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.0.folder.join("mount").join(name)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.0.folder.join("mount")).status();
        if !std::thread::panicking() {
            assert!(status.unwrap().success(), "umount");
        }
    }
}

/// A compressed extent of a file, from `btrfs inspect-internal dump-tree`.
#[derive(Debug)]
struct Extent {
    algorithm: Algorithm,
    kind: ExtentKind,
    inode: u64,
    /// Offset in the file.
    file_offset: u64,
    /// The start of the stream in the image, and the bytes reserved for it.
    physical: u64,
    stored_bytes: u64,
    ram_bytes: u64,
}

impl Extent {
    fn stored(&self, image: &Image) -> Vec<u8> {
        image.read_at(self.physical, self.stored_bytes)
    }
}

/// The words of a line that are numbers.
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Chunks of one device, as (logical, length, physical).
fn chunks(dump: &str) -> Vec<(u64, u64, u64)> {
    let mut chunks = Vec::new();
    let (mut logical, mut len) = (0, 0);
    for line in dump.lines().map(str::trim) {
        if line.contains("FIRST_CHUNK_TREE CHUNK_ITEM ") {
            logical = numbers(line.split("CHUNK_ITEM ").nth(1).unwrap())[0];
            len = 0;
        } else if len == 0 && line.starts_with("length ") {
            len = numbers(line)[0];
        } else if line.starts_with("stripe 0 devid 1 offset ") {
            chunks.push((logical, len, numbers(line)[2]));
        }
    }
    chunks
}

/// The compressed extents of the default subvolume.
fn extents(image: &Image) -> Vec<Extent> {
    let dump = |tree| {
        let path = image.path();
        let arguments = ["inspect-internal", "dump-tree", "-t", tree, path.to_str().unwrap()];
        String::from_utf8(run("btrfs", &arguments, b"")).unwrap()
    };
    let chunks = chunks(&dump("chunk"));
    let physical = |logical: u64| {
        let (start, _, physical) =
            chunks.iter().find(|(start, len, _)| (*start..start + len).contains(&logical)).unwrap();
        logical - start + physical
    };
    let mut extents = Vec::new();
    let mut leaf = 0;
    let (mut inode, mut file_offset, mut payload) = (0, 0, 0);
    let (mut kind, mut stored_at, mut stored_bytes, mut ram_bytes) = (ExtentKind::Regular, 0, 0, 0);
    for line in dump("fs").lines().map(str::trim) {
        let values = numbers(line);
        if line.starts_with("leaf ") && line.contains(" items ") {
            leaf = values[0];
        } else if line.starts_with("item ") && line.contains(" EXTENT_DATA ") {
            (inode, file_offset) = (values[1], values[2]);
            payload = physical(leaf) + NODE_HEADER_BYTES + values[3] + FILE_EXTENT_HEAD_BYTES;
        } else if line.starts_with("extent data disk byte ") {
            (kind, stored_bytes) = (ExtentKind::Regular, values[1]);
            stored_at = if values[0] == 0 { 0 } else { physical(values[0]) };
        } else if line.starts_with("extent data offset ") {
            ram_bytes = values[2];
        }
        // Inline extents have all on one line, regular ones the algorithm on their last.
        if line.starts_with("inline extent data size ") {
            (kind, stored_at, stored_bytes, ram_bytes) =
                (ExtentKind::Inline, payload, values[0], values[1]);
        } else if !line.starts_with("extent compression ") {
            continue;
        }
        let number = *values.last().unwrap();
        if let Some(algorithm) = Algorithm::from_disk(number as u8) {
            let physical = stored_at;
            extents.push(Extent {
                algorithm,
                kind,
                inode,
                file_offset,
                physical,
                stored_bytes,
                ram_bytes,
            });
        }
    }
    extents
}

/// Reproducible bytes without any pattern.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(len)
    .collect()
}

/// Text that compresses to a third or so.
fn prose(seed: u64, len: usize) -> Vec<u8> {
    let words = ["larder ", "bread ", "butter ", "flour\n", "a ", "pinch ", "of ", "saltier "];
    noise(seed, len)
        .iter()
        .flat_map(|byte| words[usize::from(byte % 8)].bytes())
        .take(len)
        .collect()
}

/// Files of several kinds, small and large.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("zeros".to_owned(), vec![0; 1_000_000]),
        ("prose".to_owned(), prose(1, 777_777)),
        ("mixture".to_owned(), {
            let parts = (0..40).flat_map(|part| {
                let len = 3000 + 700 * part as usize;
                [prose(part, len), noise(part, len / 4), vec![part as u8; len]]
            });
            parts.collect::<Vec<_>>().concat()
        }),
        // Every sector compresses a little, so that LZO segments end anywhere in their sectors.
        ("grain".to_owned(), {
            let sectors =
                (0..500).map(|n| [noise(n, 3900 - 3 * n as usize), vec![7; 196]].concat());
            sectors.collect::<Vec<_>>().concat()
        }),
    ];
    for len in [100, 777, 2047, 4000, 4096] {
        files.push((format!("small-{len}"), prose(len as u64, len)));
    }
    files
}

#[test]
fn streams_of_the_kernel_are_decoded() {
    for spec in ["zlib:1", "zlib:9", "lzo", "zstd:1", "zstd:15", "zstd:-10"] {
        let image = Image::new("written");
        let mut inodes = Vec::new();
        {
            let mount = image.mount(&format!("compress-force={spec},max_inline=2048"));
            for (name, content) in files() {
                let path = mount.file(&name);
                fs::write(&path, &content).unwrap();
                inodes.push((inode_of(&path), content));
            }
        }
        let algorithm = spec.parse::<Compression>().unwrap().algorithm();
        let (mut inline, mut regular, mut ended_early) = (0, 0, 0);
        for extent in extents(&image) {
            assert_eq!(extent.algorithm, algorithm);
            let (_, content) = inodes.iter().find(|(inode, _)| *inode == extent.inode).unwrap();
            let mut expected = content[extent.file_offset as usize..].to_vec();
            // After the file's size the last sector reads as zeros.
            expected.resize(extent.ram_bytes as usize, 0);
            let stored = extent.stored(&image);
            let mut output = vec![0xa5; expected.len()];
            let result = decompress(algorithm, &stored, &mut output, SECTOR_BYTES, extent.kind);
            let produced = result.unwrap_or_else(|error| panic!("{spec} {extent:?}: {error}"));
            assert!(output == expected, "{spec} {extent:?}");
            ended_early += usize::from(produced < output.len());
            match extent.kind {
                ExtentKind::Inline => inline += 1,
                ExtentKind::Regular => regular += 1,
            }
            let part = expected.len() / 3;
            let mut output = vec![0xa5; part];
            decompress(algorithm, &stored, &mut output, SECTOR_BYTES, extent.kind).unwrap();
            assert!(output == expected[..part], "{spec} {extent:?}");
        }
        assert!(
            inline >= 3 && regular >= 20 && ended_early >= 1,
            "{inline} {regular} {ended_early}"
        );
    }
}

fn inode_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().ino()
}

/// Data for an extent whose stream takes exactly the extent's space, and that stream. Every sector
/// is noise, then zeros. Among LZO streams that fit, one with padding before a segment's length is
/// preferred.
fn content_whose_stream_fits(compressor: &mut Compressor, extent: &Extent) -> (Vec<u8>, Vec<u8>) {
    let (len, room) = (extent.ram_bytes as usize, extent.stored_bytes as usize);
    let sectors = len.div_ceil(SECTOR_BYTES as usize);
    let mut found = None;
    for noisy in (0..=room / sectors).rev() {
        let mut content = Vec::new();
        for sector in 0..sectors {
            content.extend(noise(extent.file_offset + sector as u64, noisy + sector * 37 % 61));
            content.resize(((sector + 1) * SECTOR_BYTES as usize).min(len), 0);
        }
        let mut stream = vec![0; len];
        let made = compressor.compress(&content, &mut stream, SECTOR_BYTES, extent.kind).unwrap();
        let Some(stream_len) = made else { continue };
        stream.truncate(stream_len);
        // The kernel wants a regular LZO extent to use all its sectors, and an inline one to be
        // exact.
        let fits = match (extent.kind, extent.algorithm) {
            (ExtentKind::Inline, Algorithm::Lzo) => stream_len == room,
            (ExtentKind::Inline, _) => stream_len <= room,
            (ExtentKind::Regular, _) => stream_len.next_multiple_of(SECTOR_BYTES as usize) == room,
        };
        if fits {
            let wanted = extent.algorithm != Algorithm::Lzo || has_padding(&stream);
            if wanted {
                return (content, stream);
            }
            found.get_or_insert((content, stream));
        } else if found.is_some() {
            break;
        }
    }
    found.unwrap_or_else(|| panic!("no content gives a stream that fits {extent:?}"))
}

/// Whether a segment's length in an LZO stream was moved to the start of a sector.
fn has_padding(stream: &[u8]) -> bool {
    let mut at = 4;
    while at < stream.len() {
        let left_in_sector = SECTOR_BYTES as usize - at % SECTOR_BYTES as usize;
        if left_in_sector < 4 {
            return true;
        }
        let segment_len = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap());
        at += 4 + segment_len as usize;
    }
    false
}

/// Replaces the extents of a file that the kernel wrote by other data, compressed here. The kernel
/// ignores checksums and must read that data.
#[test]
fn the_kernel_reads_encoded_streams() {
    for spec in ["zlib:1", "zlib:9", "lzo", "zstd:1", "zstd:15", "zstd:-15"] {
        let compression: Compression = spec.parse().unwrap();
        let mut compressor = Compressor::new(compression);
        let image = Image::new("read");
        let names = ["regular", "inline"];
        let mut contents = [prose(9, 2_500_000), prose(8, 3000)];
        let mut inodes = [0; 2];
        {
            let options = format!("compress-force={},max_inline=2048", compression.algorithm());
            let mount = image.mount(&options);
            for ((name, content), inode) in names.iter().zip(&contents).zip(&mut inodes) {
                fs::write(mount.file(name), content).unwrap();
                *inode = inode_of(&mount.file(name));
            }
        }
        let (mut regular, mut inline, mut padded) = (0, 0, 0);
        for extent in extents(&image) {
            let (content, mut stream) = content_whose_stream_fits(&mut compressor, &extent);
            padded += usize::from(extent.algorithm == Algorithm::Lzo && has_padding(&stream));
            stream.resize(extent.stored_bytes as usize, 0xff);
            image.write_at(extent.physical, &stream);
            let which = inodes.iter().position(|inode| *inode == extent.inode).unwrap();
            let start = extent.file_offset as usize;
            let end = (start + content.len()).min(contents[which].len());
            contents[which][start..end].copy_from_slice(&content[..end - start]);
            match extent.kind {
                ExtentKind::Inline => inline += 1,
                ExtentKind::Regular => regular += 1,
            }
        }
        assert!(regular >= 10 && inline == 1, "{regular} {inline}");
        assert!(padded >= 1 || compression.algorithm() != Algorithm::Lzo, "no LZO padding met");
        let mount = image.mount("ro,rescue=ignoredatacsums,rescue=ignoremetacsums");
        for (name, content) in names.iter().zip(&contents) {
            assert!(fs::read(mount.file(name)).unwrap() == *content, "{spec} {name}");
        }
    }
}

#[test]
fn independent_decoders_read_encoded_streams() {
    let python =
        "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))";
    let zlib = ("python3", vec!["-c", python], ["zlib:1", "zlib:3", "zlib:9"]);
    let zstd = ("zstd", vec!["-d", "-c", "-q"], ["zstd:-15", "zstd:3", "zstd:15"]);
    for (program, arguments, specs) in [zlib, zstd] {
        for spec in specs {
            let mut compressor = Compressor::new(spec.parse().unwrap());
            for content in [prose(3, MAX_UNCOMPRESSED_BYTES), vec![0; 10_000], prose(4, 5000)] {
                let mut stream = vec![0; content.len()];
                let kind = ExtentKind::Regular;
                let made = compressor.compress(&content, &mut stream, SECTOR_BYTES, kind).unwrap();
                let stream = &stream[..made.unwrap()];
                assert!(run(program, &arguments, stream) == content, "{spec}");
            }
        }
    }
}
