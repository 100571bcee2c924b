//! File systems that four threads fill with small and large files until the space runs out, and
//! half empty again, over and over: lack of space is the only error, there is little space left
//! then, and deleting always works.
//!
//! `LARDER_EFFORT` multiplies the number of fills.

use larder::{
    BalanceEnd, CompressionAlgorithm, ErrorKind, Filesystem, OpenOptions, SnapshotKind, Subvolume,
    WriteCompression,
};
use larder_testkit::{Feature, ImageSpec, KernelImage, Manifest, Profile, assert_same, oracle};

use super::balanced::everything;
use super::{check, support};

const THREADS: usize = 4;
const LENGTHS: [usize; 5] = [1500, 900, 40_000, 5 << 20, 300_000];

/// The files that a thread has created and not deleted: paths, and how many bytes could be written.
type Kept = Vec<(String, usize)>;

/// Fills and half empties an image. At least `least_percent` of its devices must take data. With
/// snapshots, each fill deletes the one before.
fn fill_again(spec: &ImageSpec, options: OpenOptions, least_percent: u64, with_snapshots: bool) {
    let image = KernelImage::empty(spec);
    let devices_bytes: u64 =
        image.devices().iter().map(|path| path.metadata().unwrap().len()).sum();
    let fs = options.write(true).open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    let mut kept: [Kept; THREADS] = std::array::from_fn(|thread| {
        root.create_directory(format!("filler-{thread}"), 0o755).unwrap();
        Vec::new()
    });
    for fill in 0..2 * larder_testkit::effort() as usize {
        each(&mut kept, |thread, kept| fill_up(&root, thread, fill, kept));
        let bytes: usize = kept.iter().flatten().map(|(_, bytes)| bytes).sum();
        let least_bytes = devices_bytes * least_percent / 100;
        assert!(bytes as u64 >= least_bytes, "{}: full of {bytes} bytes", spec.name());
        if with_snapshots {
            take_snapshot(&fs, &root);
        }
        each(&mut kept, |_, kept| half_empty(&root, fill, kept));
        fs.sync().unwrap_or_else(|error| panic!("{}: {error}", spec.name()));
        if with_snapshots && root.lookup("snapshot").is_ok() {
            root.delete_subvolume("snapshot").unwrap();
        }
    }
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, spec.name());
    go_on_by_kernel(&image, &manifest, &kept);
}

/// Fills an image, first by the kernel, balances it while it is full, and again when it is half
/// empty, over and over. Nothing makes it read-only, and each fill finds as much room.
fn balance_back(spec: &ImageSpec, least_percent: u64) {
    let image = KernelImage::empty(spec);
    let devices_bytes: u64 =
        image.devices().iter().map(|path| path.metadata().unwrap().len()).sum();
    let mut kept = filled_by_kernel(&image);
    let fs = OpenOptions::new().write(true).open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    let mut stayed = 0;
    for fill in 0..2 * larder_testkit::effort() as usize {
        if fill > 0 {
            each(&mut kept, |thread, kept| fill_up(&root, thread, fill, kept));
        }
        let bytes: usize = kept.iter().flatten().map(|(_, bytes)| bytes).sum();
        let least_bytes = devices_bytes * least_percent / 100;
        assert!(bytes as u64 >= least_bytes, "{} {fill}: full of {bytes} bytes", spec.name());
        for is_full in [true, false] {
            if !is_full {
                each(&mut kept, |_, kept| half_empty(&root, fill, kept));
                fs.sync().unwrap_or_else(|error| panic!("{} {fill}: {error}", spec.name()));
            }
            let balanced = fs.balance(&everything(), &|_| ());
            let balanced =
                balanced.unwrap_or_else(|error| panic!("{} {fill}: {error}", spec.name()));
            assert_eq!(balanced.end, BalanceEnd::Finished);
            stayed += balanced.done.without_room;
            let completed = balanced.done.progress.completed;
            assert!(is_full || completed > 0, "{} {fill}: {balanced:?}", spec.name());
        }
        fs.sync().unwrap_or_else(|error| panic!("{} {fill}: {error}", spec.name()));
    }
    println!("{}: {stayed} block groups found no room, and stayed", spec.name());
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, spec.name());
    go_on_by_kernel(&image, &manifest, &kept);
}

/// Files that the kernel writes until the space runs out.
fn filled_by_kernel(image: &KernelImage) -> [Kept; THREADS] {
    let mount = image.mount("");
    let mut kept: [Kept; THREADS] = Default::default();
    for thread in 0..THREADS {
        std::fs::create_dir(mount.path().join(format!("filler-{thread}"))).unwrap();
    }
    for number in 0..100_000_usize {
        let thread = number % THREADS;
        let path = format!("filler-{thread}/by-the-kernel-{number}");
        let data = noise(LENGTHS[number % LENGTHS.len()], number as u64);
        let written = std::fs::write(mount.path().join(&path), &data);
        let bytes = if written.is_ok() { data.len() } else { 0 };
        if mount.path().join(&path).exists() {
            kept[thread].push((path, bytes));
        }
        if let Err(error) = written {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            return kept;
        }
    }
    panic!("it holds more than its device");
}

/// Makes each thread do its part at once.
fn each(kept: &mut [Kept; THREADS], act: impl Fn(usize, &mut Kept) + Sync) {
    std::thread::scope(|scope| {
        for (thread, kept) in kept.iter_mut().enumerate() {
            let act = &act;
            scope.spawn(move || act(thread, kept));
        }
    });
}

/// Creates files until the space runs out. One that could not be written whole is kept.
fn fill_up(root: &Subvolume, thread: usize, fill: usize, kept: &mut Kept) {
    for number in 0..100_000_usize {
        let path = format!("filler-{thread}/file-{fill}-{number}");
        let data = noise(LENGTHS[(number + thread) % LENGTHS.len()], number as u64);
        let file = match root.create(&path, 0o644) {
            Ok(file) => file,
            Err(error) => return expect_no_space(&error),
        };
        match file.write_at(&data, 0) {
            Ok(()) => kept.push((path, data.len())),
            Err(error) => {
                kept.push((path, 0));
                return expect_no_space(&error);
            }
        }
    }
    panic!("it holds more than its device");
}

fn half_empty(root: &Subvolume, fill: usize, kept: &mut Kept) {
    let mut number = 0;
    kept.retain(|(path, _)| {
        number += 1;
        let stays = (number + fill).is_multiple_of(2);
        if !stays {
            root.remove_file(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        stays
    });
}

/// There may be no space for a snapshot, but asking does no harm.
fn take_snapshot(fs: &Filesystem, root: &Subvolume) {
    if let Err(error) = root.snapshot("snapshot", SnapshotKind::ReadOnly) {
        expect_no_space(&error);
    }
    fs.sync().unwrap();
}

#[track_caller]
fn expect_no_space(error: &larder::Error) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

/// Half of it is compressible.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    let mut data: Vec<u8> = std::iter::repeat_with(next).take(len / 2).collect();
    data.resize(len, 7);
    data
}

/// The kernel sees what we see, finds it sound, and can go on with it.
fn go_on_by_kernel(image: &KernelImage, manifest: &Manifest, kept: &[Kept; THREADS]) {
    {
        let mount = image.mount("ro,noatime");
        assert_same(&Manifest::of_tree(mount.path()), manifest);
    }
    {
        let mount = image.mount("");
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
        for (path, _) in kept.iter().flatten().step_by(2) {
            std::fs::remove_file(mount.path().join(path)).unwrap();
        }
        // The snapshot that was deleted last may still hold all space.
        mount.finish_deletions();
        mount.sync();
        std::fs::write(mount.path().join("by-the-kernel"), vec![1; 1 << 20]).unwrap();
    }
    check(image, "the kernel's changes");
}

fn default() -> OpenOptions {
    OpenOptions::new()
}

#[test]
fn one_device() {
    let spec = ImageSpec::new("filled").devices(&[300 << 20]);
    fill_again(&spec.profiles(Profile::Single, Profile::Single), default(), 75, false);
}

#[test]
fn copies_on_one_device() {
    let spec = ImageSpec::new("filled-dup").devices(&[256 << 20]).node_size(4096);
    fill_again(&spec.profiles(Profile::Dup, Profile::Dup), default(), 25, false);
}

#[test]
fn copies_on_two_devices() {
    let spec = ImageSpec::new("filled-raid1").devices(&[256 << 20, 300 << 20]);
    fill_again(&spec.profiles(Profile::Raid1, Profile::Raid1), default(), 30, false);
}

#[test]
fn stripes_on_devices_of_different_sizes() {
    let spec = ImageSpec::new("filled-raid0").devices(&[160 << 20, 200 << 20, 256 << 20]);
    fill_again(&spec.profiles(Profile::Raid0, Profile::Raid1), default(), 50, false);
}

#[test]
fn stripes_and_copies_on_four_devices() {
    let spec = ImageSpec::new("filled-raid10").devices(&[160 << 20; 4]);
    fill_again(&spec.profiles(Profile::Raid10, Profile::Raid1c3), default(), 25, false);
}

#[test]
fn mixed_groups() {
    let spec = ImageSpec::new("filled-mixed").devices(&[110 << 20]).mixed().node_size(4096);
    fill_again(&spec, default(), 60, false);
}

#[test]
fn with_snapshots() {
    let spec = ImageSpec::new("filled-snapshots").devices(&[200 << 20]);
    fill_again(&spec, default().discard(true), 40, true);
}

#[test]
fn mixed_groups_with_snapshots() {
    let spec = ImageSpec::new("filled-mixed-snapshots").devices(&[130 << 20]);
    let spec = spec.mixed().node_size(4096);
    fill_again(&spec, default(), 50, true);
}

#[test]
fn compressed() {
    let spec = ImageSpec::new("filled-compressed").devices(&[130 << 20]).without(Feature::NoHoles);
    let compression =
        WriteCompression { compression: CompressionAlgorithm::Lzo.into(), force: false };
    fill_again(&spec, default().compression(Some(compression)), 50, false);
}

#[test]
fn one_device_is_balanced_back() {
    let spec = ImageSpec::new("balanced-back").devices(&[300 << 20]);
    balance_back(&spec.profiles(Profile::Single, Profile::Dup), 50);
}

#[test]
fn copies_on_two_devices_are_balanced_back() {
    let spec = ImageSpec::new("balanced-back-raid1").devices(&[256 << 20, 300 << 20]);
    balance_back(&spec.profiles(Profile::Raid1, Profile::Raid1), 25);
}

#[test]
fn stripes_and_copies_are_balanced_back() {
    let spec = ImageSpec::new("balanced-back-raid10").devices(&[160 << 20; 4]);
    balance_back(&spec.profiles(Profile::Raid10, Profile::Raid1c3), 20);
}

#[test]
fn other_profiles_are_balanced_back() {
    let of = |name: &str, devices: &[u64]| ImageSpec::new(name).devices(devices);
    let dup = of("balanced-back-dup", &[256 << 20]).profiles(Profile::Dup, Profile::Dup);
    balance_back(&dup, 20);
    let stripes = of("balanced-back-raid0", &[160 << 20, 200 << 20]);
    balance_back(&stripes.profiles(Profile::Raid0, Profile::Raid0), 40);
    let copies = of("balanced-back-raid1c3", &[256 << 20; 4]);
    balance_back(&copies.profiles(Profile::Raid1c3, Profile::Raid1c4), 12);
    let mixed = of("balanced-back-mixed", &[130 << 20]).mixed().node_size(4096);
    balance_back(&mixed, 40);
}
