//! The same calls on the kernel's files and on ours, one after the other: each has the same result,
//! the files have data and holes in the same places, and the same allocated bytes.
//!
//! There is one difference, and it is accounted for to the sector: where a file grows, or a part of
//! a sector is punched, the kernel writes zeros to the rest of the sector, even if that was a hole
//! or preallocated. Ours stay as they are. Such a sector is *spoiled* until it changes otherwise.
//! And where the kernel overlooks preallocated space, ours does not; see
//! `the_kernel_overlooks_preallocated_space_of_a_clone`.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use larder::{AllocateMode, ExtentKind, InodeFlags, SetAttributes, Subvolume};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, clone_range, dedupe_range};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, IFlags, SeekFrom, fallocate, ioctl_setflags, seek};

use super::{check, open};

const SECTOR: u64 = 4096;
const FILES: usize = 4;
const STEPS: usize = 250;

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

    /// Sectors of a file of `len_bytes` that the kernel may spoil; `source` are the spoiled ones of
    /// the other file.
    fn spoils(self, len_bytes: u64, source: &BTreeSet<u64>) -> BTreeSet<u64> {
        let part_of = |at: u64| (!at.is_multiple_of(SECTOR)).then_some(at / SECTOR);
        let grows_to = |end: u64| part_of(len_bytes).filter(|_| end > len_bytes);
        let shared = |from: u64, to: u64| {
            source.iter().map(move |at| (at + to / SECTOR).wrapping_sub(from / SECTOR))
        };
        match self {
            Self::Truncate { len } => grows_to(len).into_iter().collect(),
            // A write leaves no hole in the sector of its start.
            Self::Write { offset, .. } => grows_to(offset).into_iter().collect(),
            Self::Allocate { offset, len, .. } | Self::Zero { offset, len, .. } => {
                grows_to(offset + len).into_iter().collect()
            }
            Self::Punch { offset, len } => {
                [offset, offset + len].into_iter().filter_map(part_of).collect()
            }
            Self::Clone { from, to, .. } => {
                grows_to(to).into_iter().chain(shared(from, to)).collect()
            }
            Self::Dedupe { from, to, .. } => shared(from, to).collect(),
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
                // The kernel reports all of it, even if a partial sector was left out.
                return Ok(file.dedupe_range(other, from, len, to)?.map_or(0, |_| len));
            }
        }
        Ok(0)
    }
}

/// The sectors in which a file has data, as seeking finds it.
fn sectors(
    seek_data: impl Fn(u64) -> Option<u64>,
    seek_hole: impl Fn(u64) -> Option<u64>,
) -> BTreeSet<u64> {
    let (mut at, mut sectors) = (0, BTreeSet::new());
    while let Some(start) = seek_data(at) {
        at = seek_hole(start).expect("there is a hole at the end");
        sectors.extend(start / SECTOR..at.div_ceil(SECTOR));
    }
    sectors
}

fn sectors_of_kernel(file: &File) -> BTreeSet<u64> {
    let find = |from| seek(file, from).ok();
    sectors(|at| find(SeekFrom::Data(at)), |at| find(SeekFrom::Hole(at)))
}

fn sectors_of_larder(file: &larder::File) -> BTreeSet<u64> {
    sectors(|at| file.seek_data(at).ok(), |at| file.seek_hole(at).ok())
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

/// A file of the kernel and one of ours, with the same changes.
struct Twins {
    kernel: File,
    larder: larder::File,
    /// Sectors to which only the kernel has written zeros.
    spoiled: BTreeSet<u64>,
}

impl Twins {
    /// They have the same content, in the same places except for spoiled sectors, which are among
    /// `may_be`.
    fn compare(&mut self, may_be: &BTreeSet<u64>, what: &str) {
        let len = self.kernel.metadata().unwrap().len();
        assert_eq!(self.larder.len_bytes(), len, "{what}");
        let (mut theirs, mut ours) = (vec![0; len as usize], vec![1; len as usize]);
        self.kernel.read_exact_at(&mut theirs, 0).unwrap();
        assert_eq!(self.larder.read_at(&mut ours, 0).unwrap(), ours.len());
        assert!(theirs == ours, "{what}");
        let (theirs, ours) = (sectors_of_kernel(&self.kernel), sectors_of_larder(&self.larder));
        let no_data = &ours - &theirs;
        assert!(no_data.is_empty(), "{what}: the kernel has no data in {no_data:?}");
        let more = &theirs - &ours;
        self.spoiled = &more & may_be;
        let not_seen = &more - may_be;
        let is_room = |sector: &u64| self.kind_at(*sector) == ExtentKind::Preallocated;
        let is_overlooked = self.kernel_allocated_bytes() == len && not_seen.iter().all(is_room);
        assert!(
            not_seen.is_empty() || is_overlooked,
            "{what}: the kernel has data in {not_seen:?} too, not only in {may_be:?}"
        );
    }

    /// Both have the same allocated bytes, when nothing is dirty.
    fn compare_allocated(&self, what: &str) {
        let is_hole = |sector: &&u64| self.kind_at(**sector) == ExtentKind::Hole;
        let more_bytes = self.spoiled.iter().filter(is_hole).count() as u64 * SECTOR;
        let ours = self.larder.metadata().allocated_bytes.next_multiple_of(512);
        assert_eq!(ours + more_bytes, self.kernel_allocated_bytes(), "{what}: {:?}", self.spoiled);
    }

    fn kernel_allocated_bytes(&self) -> u64 {
        self.kernel.metadata().unwrap().blocks() * 512
    }

    /// The extents of our file.
    fn kind_at(&self, sector: u64) -> ExtentKind {
        let extent = self.larder.extents_from(sector * SECTOR).unwrap().next();
        extent.map_or(ExtentKind::Hole, |extent| extent.unwrap().kind)
    }
}

fn compare(spec: &ImageSpec, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let theirs = KernelImage::build(spec, &Content::new(71));
    let ours = KernelImage::build(spec, &Content::new(71));
    let mount = theirs.mount("");
    let fs = open(&ours);
    let root = fs.subvolume("/").unwrap();
    let pairs = files_of_kernel(mount.path()).into_iter().zip(files_of_larder(&root));
    let mut twins: Vec<Twins> =
        pairs.map(|(kernel, larder)| Twins { kernel, larder, spoiled: BTreeSet::new() }).collect();
    let mut random = StdRng::seed_from_u64(seed);
    for step in 0..STEPS {
        let call = Call::random(&mut random);
        let (at, other) = (random.random_range(0..FILES), random.random_range(0..FILES));
        let what = format!("{seed}, step {step}: {call:?} of file {at}, other {other}");
        // Shown if this fails.
        println!("{what}");
        let len = twins[at].larder.len_bytes();
        let mut source = twins[other].spoiled.clone();
        if at == other {
            // It may spoil a sector that it then shares.
            source.extend(call.spoils(len, &BTreeSet::new()));
        }
        let may_be = &twins[at].spoiled | &call.spoils(len, &source);
        let expected = call.of_kernel(&twins[at].kernel, &twins[other].kernel);
        let seen = call.of_larder(&twins[at].larder, &twins[other].larder);
        let seen = seen.map_err(|error| rustix::io::Errno::from_raw_os_error(error.errno()));
        assert_eq!(seen, expected, "{what}");
        twins[at].compare(&may_be, &what);
        if step % 25 == 0 {
            mount.sync();
            fs.sync().unwrap();
            for twins in &twins {
                twins.compare_allocated(&what);
            }
        }
    }
    fs.sync().unwrap();
    drop((twins, root, fs));
    check(&ours, &format!("{seed}"));
}

#[test]
fn calls_do_the_same_as_in_the_kernel() {
    compare(&ImageSpec::new("parity"), 1);
    compare(&ImageSpec::new("parity-holes").without(Feature::NoHoles), 2);
}

/// The kernel does not look for holes in a file whose allocated bytes are its length, unless it
/// preallocated space in it itself: it overlooks preallocated space that came with a clone, and
/// calls it data.
#[test]
fn the_kernel_overlooks_preallocated_space_of_a_clone() {
    let image = KernelImage::build(&ImageSpec::new("overlooked"), &Content::new(72));
    let mount = image.mount("");
    let create = |name| {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mount.path().join(name))
            .unwrap()
    };
    let (room, file) = (create("room"), create("file"));
    fallocate(&room, FallocateFlags::empty(), 0, 4 * SECTOR).unwrap();
    file.write_all_at(&[1; SECTOR as usize], 0).unwrap();
    clone_range(&file, SECTOR, &room, 0, 4 * SECTOR).unwrap();
    mount.sync();
    assert_eq!(sectors_of_kernel(&room), BTreeSet::new());
    assert_eq!(sectors_of_kernel(&file), (0..5).collect());
    // With a hole after it, it looks.
    rustix::fs::ftruncate(&file, 8 * SECTOR).unwrap();
    assert_eq!(sectors_of_kernel(&file), BTreeSet::from([0]));
    drop((room, file, mount));
    let fs = open(&image);
    let file = fs.subvolume("/").unwrap().open_file("file").unwrap();
    file.set_len(5 * SECTOR).unwrap();
    assert_eq!(sectors_of_larder(&file), BTreeSet::from([0]));
}
