//! An image that the kernel made and filled.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{ImageSpec, Quota};
use crate::command::run;
use crate::content::{Content, PowerCut};
use crate::guard::{KernelMount, Scratch};
use crate::ioctl;
use crate::manifest::Manifest;
use crate::sparse_file::sparse_copy;

/// Options to see everything, whatever the default subvolume, and to change nothing.
const READING: &str = "ro,noatime,subvolid=5";

/// The places of the superblock and its copies on a device, and their length.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: usize = 4096;
/// The address of the tree of log trees in a superblock.
const LOG_ROOT: Range<usize> = 96..104;

/// Options without commits in the background while a test runs.
const NEVER_COMMITTING: &str = "commit=300";

/// The image files of one unmounted file system, in a folder that is removed when this is dropped.
#[derive(Debug)]
pub struct KernelImage {
    spec: ImageSpec,
    devices: Vec<PathBuf>,
    manifest: OnceLock<Manifest>,
    scratch: Scratch,
}

impl KernelImage {
    /// Makes an image with mkfs.btrfs and makes the kernel fill it with `content`.
    ///
    /// Panics if a program or the kernel refuses, with the reason.
    #[track_caller]
    pub fn build(spec: &ImageSpec, content: &Content) -> Self {
        Self::build_with(spec, content, |files| mkfs(spec, files))
    }

    /// Makes an image with mkfs.btrfs and leaves it empty.
    #[track_caller]
    pub fn empty(spec: &ImageSpec) -> Self {
        let scratch = Scratch::new();
        let devices: Vec<PathBuf> = (1..)
            .zip(&spec.device_lens_bytes)
            .map(|(number, &len_bytes)| scratch.sparse_file(&format!("device{number}"), len_bytes))
            .collect();
        mkfs(spec, &devices);
        Self { spec: spec.clone(), devices, manifest: OnceLock::new(), scratch }
    }

    /// As [`KernelImage::build`], but `format` makes the file system on the given empty files, and
    /// handles the spec's options for mkfs.btrfs itself.
    #[track_caller]
    pub fn build_with(
        spec: &ImageSpec,
        content: &Content,
        format: impl FnOnce(&[PathBuf]),
    ) -> Self {
        let uninterrupted = !spec.power_cut || spec.events.is_empty();
        assert!(uninterrupted, "{}: nothing happens after a power cut", spec.name());
        let scratch = Scratch::new();
        let mut devices: Vec<PathBuf> = (1..)
            .zip(&spec.device_lens_bytes)
            .map(|(number, &len_bytes)| scratch.sparse_file(&format!("device{number}"), len_bytes))
            .collect();
        format(&devices);
        if spec.power_cut {
            devices = fill_until_power_cut(spec, content, &devices, &scratch);
        } else {
            fill(spec, content, &devices);
        }
        for event in &spec.events {
            event.happen(&mut devices, &scratch, content);
        }
        Self { spec: spec.clone(), devices, manifest: OnceLock::new(), scratch }
    }

    /// The spec that it was made from.
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// The image files, one for each device.
    pub fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    /// The folder of the image files.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Mounts the image in the kernel with the comma-separated `options`.
    #[track_caller]
    pub fn mount(&self, options: &str) -> KernelMount {
        KernelMount::open(&self.devices, options)
    }

    /// The content of the image as the kernel shows it. The first call mounts it read-only.
    ///
    /// After a power cut this is the last committed state: the log tree is not replayed.
    #[track_caller]
    pub fn manifest(&self) -> &Manifest {
        self.manifest.get_or_init(|| {
            let replay = if self.spec.power_cut { ",rescue=nologreplay" } else { "" };
            Manifest::of_tree(self.mount(&format!("{READING}{replay}")).path())
        })
    }

    /// The content of a recovered copy of the image: log replayed, orphans gone.
    #[track_caller]
    pub fn recovered_manifest(&self) -> Manifest {
        let copy = self.duplicate();
        drop(copy.mount(""));
        Manifest::of_tree(copy.mount(READING).path())
    }

    /// The state after a power cut after `work` on the image, which is mounted with the options of
    /// its spec. Files that `work` syncs are in log trees, unless it commits. Without a log `work` is
    /// done again on another copy: any program that calls sync(2) commits here too.
    #[must_use]
    #[track_caller]
    pub fn cut_power(&self, work: impl Fn(&Path)) -> Self {
        const ATTEMPTS: u32 = 4;
        let mut crashed = self.cut_power_once(&work);
        for _ in 1..ATTEMPTS {
            if crashed.has_log() {
                break;
            }
            crashed = self.cut_power_once(&work);
        }
        crashed
    }

    /// Whether the first superblock leads to log trees.
    fn has_log(&self) -> bool {
        self.devices.iter().any(|device| superblocks_of(device)[0][LOG_ROOT] != [0; 8])
    }

    #[track_caller]
    fn cut_power_once(&self, work: &impl Fn(&Path)) -> Self {
        let original = self.duplicate();
        let options = format!("{NEVER_COMMITTING},{}", self.spec.filling_options());
        let mount = original.mount(&options);
        work(mount.path());
        at_one_commit(&original.devices, || original.duplicate())
    }

    /// A copy of the image files, to damage or change. It has the same fsid: see [`KernelMount`].
    #[must_use]
    #[track_caller]
    pub fn duplicate(&self) -> Self {
        let scratch = Scratch::new();
        let devices = copy_files(&self.devices, &scratch, "");
        Self { spec: self.spec.clone(), devices, manifest: OnceLock::new(), scratch }
    }
}

#[track_caller]
fn copy_files(files: &[PathBuf], scratch: &Scratch, suffix: &str) -> Vec<PathBuf> {
    let copy = |file: &PathBuf| {
        let mut name = file.file_name().expect("an image file has a name").to_owned();
        name.push(suffix);
        let target = scratch.path().join(name);
        sparse_copy(file, &target)
            .unwrap_or_else(|error| panic!("cannot copy {}: {error}", file.display()));
        target
    };
    files.iter().map(copy).collect()
}

/// Copies the devices of a mounted file system until no commit comes meanwhile: any program that
/// calls sync(2) causes one, and a copy with parts of two commits is no state that a power cut
/// leaves.
#[track_caller]
fn at_one_commit<T>(devices: &[PathBuf], copy: impl Fn() -> T) -> T {
    const ATTEMPTS: u32 = 100;
    let superblocks = || devices.iter().map(|path| superblocks_of(path)).collect::<Vec<_>>();
    for _ in 0..ATTEMPTS {
        let (before, copied) = (superblocks(), copy());
        if superblocks() == before {
            return copied;
        }
    }
    panic!("each time that {devices:?} were copied, the kernel committed");
}

/// The superblock and its copies.
fn superblocks_of(device: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(device).expect("the image file opens");
    let len_bytes = file.metadata().expect("it has a length").len();
    let read = |offset: &u64| {
        let mut superblock = vec![0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut superblock, *offset).expect("it is read");
        superblock
    };
    let reached = |offset: &&u64| *offset + SUPERBLOCK_BYTES as u64 <= len_bytes;
    SUPERBLOCKS.iter().take_while(reached).map(read).collect()
}

/// mkfs.btrfs works on files directly: no loop device is needed.
#[track_caller]
fn mkfs(spec: &ImageSpec, files: &[PathBuf]) {
    let arguments = spec.mkfs_arguments();
    let options = arguments.iter().map(OsStr::new);
    let files = files.iter().map(|file| file.as_os_str());
    run("mkfs.btrfs", options.chain(files)).unwrap_or_else(|error| panic!("{error}"));
}

#[track_caller]
fn fill(spec: &ImageSpec, content: &Content, devices: &[PathBuf]) {
    let mount = mount_for_filling(spec, devices);
    content.fill(mount.path());
}

#[track_caller]
fn fill_until_power_cut(
    spec: &ImageSpec,
    content: &Content,
    devices: &[PathBuf],
    scratch: &Scratch,
) -> Vec<PathBuf> {
    let mount = mount_for_filling(spec, devices);
    content.fill(mount.path());
    mount.sync();
    let unfinished = PowerCut::prepare(&mount);
    let copies = at_one_commit(devices, || copy_files(devices, scratch, ".power-cut"));
    drop(unfinished);
    drop(mount);
    for file in devices {
        std::fs::remove_file(file).expect("the image file can be removed");
    }
    copies
}

#[track_caller]
fn mount_for_filling(spec: &ImageSpec, devices: &[PathBuf]) -> KernelMount {
    let mount = KernelMount::open(devices, &spec.filling_options());
    match spec.quota {
        Quota::Off => {}
        Quota::Full => group_everything(mount.path()),
        Quota::Simple => {
            let root = std::fs::File::open(mount.path()).expect("the mount point opens");
            ioctl::enable_simple_quotas(&root).expect("the kernel has simple quotas");
        }
    }
    mount
}

/// A quota group of the next level with a limit, and the top level subvolume in it.
#[track_caller]
fn group_everything(root: &Path) {
    let arguments: [&[&str]; 3] =
        [&["create", "1/1"], &["limit", "10G", "1/1"], &["assign", "0/5", "1/1"]];
    for arguments in arguments {
        let command = ["qgroup"].iter().chain(arguments).map(OsStr::new);
        run("btrfs", command.chain([root.as_os_str()])).unwrap_or_else(|error| panic!("{error}"));
    }
    run("btrfs", ["quota".as_ref(), "rescan".as_ref(), "-w".as_ref(), root.as_os_str()])
        .unwrap_or_else(|error| panic!("{error}"));
}
