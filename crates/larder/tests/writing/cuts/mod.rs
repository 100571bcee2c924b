//! Power cuts while many threads work: everything that the devices had not made durable is lost,
//! torn or there, and the result opens, satisfies both checkers, and has all that was promised.
//!
//! Each workload is recorded once and cut [`CUTS`] times, times `LARDER_EFFORT`. `LARDER_SEED`
//! makes other workloads. Both checkers run after every cut, with several devices only ours; one
//! cut in [`MOUNTED`] gets `btrfs check` in any case and a mount by the kernel too.

mod filling;
mod history;
mod players;
mod renames;

use std::path::PathBuf;
use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{ErrorKind, Filesystem, OpenOptions, Subvolume};
use larder_power_cuts::{assert_sound, assert_sound_to_btrfs, load, store, survival};
use larder_test_devices::{Entry, Event, Recording};
use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Cuts of a workload.
const CUTS: usize = 100;
/// One cut in so many is mounted by the kernel too, and used further.
const MOUNTED: usize = 20;

/// The history, and what must be left of it.
trait Work: Sized {
    /// Works on a recorded file system. Cuts before the returned position promise nothing.
    fn record(fs: &Filesystem, recording: &Recording, seed: u64) -> (Self, usize);

    /// Checks the state after a cut at `position` against earlier promises.
    fn judge(&self, root: &Subvolume, position: usize);

    /// Folders that the kernel must see as we do.
    fn folders(&self) -> Vec<String>;
}

/// Records a workload and cuts the power again and again.
fn explore<W: Work>(spec: &ImageSpec, options: &OpenOptions, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::empty(spec);
    let bases: Vec<MemoryDevice> = image.devices().iter().map(|path| load(path)).collect();
    let recording = Recording::new();
    let attach = |base| Arc::new(recording.attach(base)) as Arc<dyn Device>;
    let fs = options.open_devices(bases.iter().map(attach).collect()).unwrap();
    let (work, first) = W::record(&fs, &recording, seed);
    drop(fs);

    let mut random = StdRng::seed_from_u64(seed);
    let mut replay = recording.replay();
    replay.advance_to(first);
    let wanted = CUTS * larder_testkit::effort() as usize;
    let all = weights(&recording, first);
    let (mut cuts, mut passed) = (0, 0);
    while let Some(entry) = replay.step() {
        passed += weight(&entry);
        let due = wanted * passed / all;
        while cuts < due {
            let devices = replay.power_cut(survival(random.random()));
            let what = format!("{}, seed {seed}, cut {cuts} at {}", spec.name(), replay.position());
            judge(
                &work,
                &devices,
                replay.position(),
                options,
                cuts % MOUNTED == MOUNTED / 2,
                &what,
            );
            cuts += 1;
        }
    }
    println!("{}: {cuts} power cuts in {} entries", spec.name(), recording.position() - first);
    assert_eq!(cuts, wanted);
}

/// Flushes are where promises are made: a flush gets as many cuts as this many other entries.
fn weight(entry: &Entry) -> usize {
    if entry.event == Event::Flush { 10 } else { 1 }
}

fn weights(recording: &Recording, first: usize) -> usize {
    let mut replay = recording.replay();
    replay.advance_to(first);
    std::iter::from_fn(|| replay.step()).map(|entry| weight(&entry)).sum()
}

fn judge<W: Work>(
    work: &W,
    devices: &[MemoryDevice],
    position: usize,
    options: &OpenOptions,
    is_mounted: bool,
    what: &str,
) {
    println!("{what}");
    assert_sound(devices, what);
    let copies: Vec<Arc<MemoryDevice>> =
        devices.iter().map(|device| Arc::new(device.snapshot())).collect();
    let opened = copies.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let fs = options.clone().commit_interval(None).open_devices(opened).unwrap();
    let root = fs.subvolume("/").unwrap();
    work.judge(&root, position);
    if is_mounted {
        assert_sound_to_btrfs(devices, what);
        by_kernel(work, devices, &root);
        // It is usable, unless it is full.
        let made = root.create("after-the-cut", 0o644);
        if let Err(error) = made.and_then(|file| file.write_at(&[1; 9000], 0)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
        }
        fs.sync().unwrap();
        drop((root, fs));
        let devices: Vec<MemoryDevice> = copies.iter().map(|device| device.snapshot()).collect();
        assert_sound(&devices, what);
    }
}

/// The kernel can mount the result, and sees in it what we see.
fn by_kernel<W: Work>(work: &W, devices: &[MemoryDevice], root: &Subvolume) {
    let scratch = Scratch::new();
    let paths: Vec<PathBuf> =
        (0..devices.len()).map(|number| scratch.path().join(format!("device-{number}"))).collect();
    for (device, path) in devices.iter().zip(&paths) {
        store(device, path);
    }
    let mount = KernelMount::open(&paths, "ro,noatime");
    for folder in work.folders() {
        let seen = super::view::by_larder(root, &folder).unwrap();
        super::view::assert_same(
            &super::view::by_kernel(&mount.path().join(&folder)),
            &seen,
            "the kernel",
        );
    }
}
