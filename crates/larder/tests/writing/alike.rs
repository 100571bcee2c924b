//! The same calls on the kernel's files and on ours, one after the other: the same comes of each, ours have
//! holes where the kernel's do, and as much is allocated to them, but for single sectors: the kernel
//! sometimes writes zeros to the sector that a file ends in where there was a hole.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use larder::{AllocateMode, InodeFlags, SetAttributes, Subvolume};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, clone_range, dedupe_range};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, IFlags, SeekFrom, fallocate, ioctl_setflags, seek};

use super::{check, open};

const SECTOR: u64 = 4096;
const FILES: usize = 4;
const STEPS: usize = 250;
/// What the kernel may have allocated more.
const MOST_MORE_BYTES: u64 = 8 * SECTOR;

/// A call on one file, or on two.
#[derive(Clone, Copy, Debug)]
enum Call {
    Write { offset: u64, len: usize, byte: u8 },
    Truncate { len: u64 },
    Allocate { offset: u64, len: u64, keeps_size: bool },
    Zero { offset: u64, len: u64, keeps_size: bool },
    Punch { offset: u64, len: u64 },
    Clone { from: u64, len: u64, to: u64 },
    Dedupe { from: u64, len: u64, to: u64 },
}

impl Call {
    fn random(random: &mut StdRng) -> Self {
        let offset = |random: &mut StdRng| {
            let most = [5000, 40_000, 200_000][random.random_range(0..3_usize)];
            let offset = random.random_range(0..most);
            if random.random() { offset } else { offset - offset % SECTOR }
        };
        let (at, len, other) = (offset(random), offset(random), offset(random));
        let keeps_size = random.random();
        match random.random_range(0..14) {
            0..4 => Self::Write { offset: at, len: len as usize, byte: random.random_range(1..3) },
            4..6 => Self::Truncate { len: at },
            6 | 7 => Self::Allocate { offset: at, len, keeps_size },
            8 => Self::Zero { offset: at, len, keeps_size },
            9 => Self::Punch { offset: at, len },
            10..12 => Self::Clone { from: at, len, to: other },
            _ => Self::Dedupe { from: at, len, to: other },
        }
    }

    fn of_kernel(self, file: &File, other: &File) -> rustix::io::Result<u64> {
        let keep = |keeps_size| {
            if keeps_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
        };
        match self {
            Self::Write { offset, len, byte } => {
                file.write_all_at(&vec![byte; len], offset).expect("the kernel writes");
                Ok(0)
            }
            Self::Truncate { len } => rustix::fs::ftruncate(file, len).map(|()| 0),
            Self::Allocate { offset, len, keeps_size } => {
                fallocate(file, keep(keeps_size), offset, len).map(|()| 0)
            }
            Self::Zero { offset, len, keeps_size } => {
                let flags = FallocateFlags::ZERO_RANGE | keep(keeps_size);
                fallocate(file, flags, offset, len).map(|()| 0)
            }
            Self::Punch { offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, offset, len).map(|()| 0)
            }
            Self::Clone { from, len, to } => clone_range(file, to, other, from, len).map(|()| 0),
            Self::Dedupe { from, len, to } => dedupe_range(file, to, other, from, len),
        }
    }

    fn of_larder(self, file: &larder::File, other: &larder::File) -> larder::Result<u64> {
        let mode = |keeps_size| {
            if keeps_size { AllocateMode::KeepSize } else { AllocateMode::Grow }
        };
        match self {
            Self::Write { offset, len, byte } => file.write_at(&vec![byte; len], offset)?,
            Self::Truncate { len } => file.set_len(len)?,
            Self::Allocate { offset, len, keeps_size } => {
                file.allocate(offset, len, mode(keeps_size))?;
            }
            Self::Zero { offset, len, keeps_size } => {
                file.zero_range(offset, len, mode(keeps_size))?;
            }
            Self::Punch { offset, len } => file.punch_hole(offset, len)?,
            Self::Clone { from, len, to } => file.clone_range(other, from, len, to)?,
            Self::Dedupe { from, len, to } => {
                // The kernel says all of it, also if less than a sector of it was left out.
                return Ok(file.dedupe_range(other, from, len, to)?.map_or(0, |_| len));
            }
        }
        Ok(0)
    }
}

/// Where a file has data, as seeking finds it.
fn map(
    seek_data: impl Fn(u64) -> Option<u64>,
    seek_hole: impl Fn(u64) -> Option<u64>,
) -> Vec<(u64, u64)> {
    let (mut at, mut map) = (0, Vec::new());
    while let Some(start) = seek_data(at) {
        at = seek_hole(start).expect("there is a hole at the end");
        map.push((start, at));
    }
    map
}

fn map_of_kernel(file: &File) -> Vec<(u64, u64)> {
    let find = |from| seek(file, from).ok();
    map(|at| find(SeekFrom::Data(at)), |at| find(SeekFrom::Hole(at)))
}

fn map_of_larder(file: &larder::File) -> Vec<(u64, u64)> {
    map(|at| file.seek_data(at).ok(), |at| file.seek_hole(at).ok())
}

fn files_of_kernel(folder: &Path) -> Vec<File> {
    let file = |number| {
        let path = folder.join(format!("file-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        if number == FILES - 1 {
            ioctl_setflags(&file, IFlags::NOCOW).unwrap();
        }
        file
    };
    (0..FILES).map(file).collect()
}

fn files_of_larder(root: &Subvolume) -> Vec<larder::File> {
    let file = |number| {
        let file = root.create(format!("file-{number}"), 0o644).unwrap();
        if number == FILES - 1 {
            let flags = Some(InodeFlags::NODATACOW);
            file.set_attributes(&SetAttributes { flags, ..Default::default() }).unwrap();
        }
        file
    };
    (0..FILES).map(file).collect()
}

fn compare(spec: &ImageSpec, seed: u64) {
    let theirs = KernelImage::build(spec, &Content::new(71));
    let ours = KernelImage::build(spec, &Content::new(71));
    let mount = theirs.mount("");
    let fs = open(&ours);
    let root = fs.subvolume("/").unwrap();
    let (kernels, larders) = (files_of_kernel(mount.path()), files_of_larder(&root));
    let mut random = StdRng::seed_from_u64(seed);
    for step in 0..STEPS {
        let call = Call::random(&mut random);
        let (at, other) = (random.random_range(0..FILES), random.random_range(0..FILES));
        let what = format!("{seed}, step {step}: {call:?} of file {at}, other {other}");
        let expected = call.of_kernel(&kernels[at], &kernels[other]);
        let seen = call.of_larder(&larders[at], &larders[other]);
        let seen = seen.map_err(|error| rustix::io::Errno::from_raw_os_error(error.errno()));
        assert_eq!(seen, expected, "{what}");
        let (kernel, larder) = (&kernels[at], &larders[at]);
        let len = kernel.metadata().unwrap().len();
        assert_eq!(larder.len_bytes(), len, "{what}");
        let (mut theirs, mut ours) = (vec![0; len as usize], vec![1; len as usize]);
        kernel.read_exact_at(&mut theirs, 0).unwrap();
        assert_eq!(larder.read_at(&mut ours, 0).unwrap(), ours.len());
        assert!(theirs == ours, "{what}");
        let theirs = map_of_kernel(kernel);
        for (start, end) in map_of_larder(larder) {
            let is_there = theirs.iter().any(|range| range.0 <= start && end <= range.1);
            assert!(is_there, "{what}: data at {start}..{end}, the kernel has it at {theirs:?}");
        }
        if step % 25 == 0 {
            mount.sync();
            fs.sync().unwrap();
            for (kernel, larder) in kernels.iter().zip(&larders) {
                let allocated = kernel.metadata().unwrap().blocks() * 512;
                let ours = larder.metadata().allocated_bytes.next_multiple_of(512);
                let is_alike = ours <= allocated && ours + MOST_MORE_BYTES >= allocated;
                assert!(is_alike, "{what}: {ours} bytes are allocated, by the kernel {allocated}");
            }
        }
    }
    fs.sync().unwrap();
    drop((larders, root, fs));
    check(&ours, &format!("{seed}"));
}

#[test]
fn calls_do_what_they_do_in_the_kernel() {
    compare(&ImageSpec::new("alike"), 1);
    compare(&ImageSpec::new("alike-holes").without(Feature::NoHoles), 2);
}
