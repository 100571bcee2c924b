//! An image that the kernel made and filled.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{ImageSpec, Quota};
use crate::command::run;
use crate::content::{Content, PowerCut};
use crate::guard::{KernelMount, LoopDevice, Scratch};
use crate::ioctl;
use crate::manifest::Manifest;
use crate::sparse_file::sparse_copy;

/// The image files of one file system, unmounted, in a folder that goes when this is dropped.
#[derive(Debug)]
pub struct KernelImage {
    spec: ImageSpec,
    devices: Vec<PathBuf>,
    manifest: OnceLock<Manifest>,
    scratch: Scratch,
}

impl KernelImage {
    /// Makes an image with mkfs.btrfs and has the kernel fill it with `content`.
    ///
    /// Panics where something is refused, saying by whom and why.
    #[track_caller]
    pub fn build(spec: &ImageSpec, content: &Content) -> Self {
        Self::build_with(spec, content, |files| mkfs(spec, files))
    }

    /// As [`KernelImage::build`], but `format` makes the file system on the empty files that it is
    /// given. What the spec says to mkfs.btrfs is then up to `format`.
    #[track_caller]
    pub fn build_with(
        spec: &ImageSpec,
        content: &Content,
        format: impl FnOnce(&[PathBuf]),
    ) -> Self {
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
        if spec.changed_fsid {
            change_fsid(&devices);
        }
        if let Some(len_bytes) = spec.sprout_len_bytes {
            devices.push(scratch.sparse_file("sprout", len_bytes));
            grow_sprout(content, &devices);
        }
        Self { spec: spec.clone(), devices, manifest: OnceLock::new(), scratch }
    }

    /// What it was made from.
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

    /// Has the kernel mount the image with the comma-separated `options`.
    #[track_caller]
    pub fn mount(&self, options: &str) -> KernelMount {
        KernelMount::open(&self.devices, options)
    }

    /// What the kernel shows in the image, which is mounted read-only for this the first time.
    ///
    /// After a power cut this is the last committed state: the log tree is not replayed.
    #[track_caller]
    pub fn manifest(&self) -> &Manifest {
        self.manifest.get_or_init(|| {
            let options =
                if self.spec.power_cut { "ro,noatime,rescue=nologreplay" } else { "ro,noatime" };
            Manifest::of_tree(self.mount(options).path())
        })
    }

    /// What the kernel shows after it has recovered a copy of the image: log replayed, orphans gone.
    #[track_caller]
    pub fn recovered_manifest(&self) -> Manifest {
        let copy = self.duplicate();
        drop(copy.mount("noatime"));
        Manifest::of_tree(copy.mount("ro,noatime").path())
    }

    /// A copy of the image files, to wound or to change. It has the same fsid: see [`KernelMount`].
    #[track_caller]
    pub fn duplicate(&self) -> Self {
        let scratch = Scratch::new();
        let devices = copy_files(&self.devices, &scratch, "");
        Self { spec: self.spec.clone(), devices, manifest: OnceLock::new(), scratch }
    }
}

#[track_caller]
fn must(program: &str, arguments: &[&OsStr]) {
    run(program, arguments).unwrap_or_else(|error| panic!("{error}"));
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

/// mkfs.btrfs works on files, but registers nothing with the kernel then: no loop device is needed.
#[track_caller]
fn mkfs(spec: &ImageSpec, files: &[PathBuf]) {
    let arguments = spec.mkfs_arguments();
    let options = arguments.iter().map(OsStr::new);
    let arguments: Vec<&OsStr> = options.chain(files.iter().map(|f| f.as_os_str())).collect();
    must("mkfs.btrfs", &arguments);
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
    let copies = copy_files(devices, scratch, ".power-cut");
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
    if spec.quota == Quota::Simple {
        let root = std::fs::File::open(mount.path()).expect("the mount point opens");
        ioctl::enable_simple_quotas(&root).expect("the kernel has simple quotas");
    }
    mount
}

#[track_caller]
fn change_fsid(devices: &[PathBuf]) {
    let attached: Vec<_> = devices.iter().map(|file| LoopDevice::attach(file)).collect();
    must("btrfstune", &["-f".as_ref(), "-m".as_ref(), attached[0].path().as_os_str()]);
}

/// Turns all devices but the last into a seed, adds the last and fills it.
#[track_caller]
fn grow_sprout(content: &Content, devices: &[PathBuf]) {
    let (sprout, seeds) = devices.split_last().expect("a sprout has a seed");
    {
        let attached: Vec<_> = seeds.iter().map(|file| LoopDevice::attach(file)).collect();
        must("btrfstune", &["-S".as_ref(), "1".as_ref(), attached[0].path().as_os_str()]);
    }
    let sprout = LoopDevice::attach(sprout);
    let mount = KernelMount::open(seeds, "");
    let add = ["device", "add"].map(OsStr::new);
    must("btrfs", &[&add[..], &[sprout.path().as_os_str(), mount.path().as_os_str()]].concat());
    mount.remount("rw");
    let folder = mount.path().join("sprout");
    std::fs::create_dir(&folder).expect("the sprout can be written");
    content.small_data(&folder);
    // The mount goes before the sprout's device, which it does not own.
    drop(mount);
    drop(sprout);
}
