//! A mount that says that it has begun serves requests.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use larder::OpenOptions;
use larder::device::{Device, MemoryDevice};
use larder_fuse::{Mount, MountOptions, Server, ServerOptions};
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_testkit::{RingsOffered, Scratch};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{UnmountFlags, unmount};

/// How many mounts are made: a single one may be lucky.
const ROUNDS: usize = 10;

/// What the kernel tells of its connections to servers.
struct Connections(Scratch);

impl Connections {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "fusectl", "none"]).arg(scratch.path());
        assert!(mount.status().unwrap().success());
        Self(scratch)
    }

    /// How many requests of the mount at `point` are unanswered.
    fn waiting(&self, point: &Path) -> u64 {
        // The kernel knows: no server is asked.
        let flags = AtFlags::STATX_DONT_SYNC;
        let found = statx(CWD, point, flags, StatxFlags::empty()).unwrap();
        let number = found.stx_dev_major << 20 | found.stx_dev_minor;
        let waiting = self.0.path().join(number.to_string()).join("waiting");
        fs::read_to_string(waiting).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn the_kernel_has_its_first_answer(io_uring: bool) {
    let connections = Connections::new();
    for _ in 0..ROUNDS {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("memory", 128 << 20));
        mkfs_on(std::slice::from_ref(&device), &MkfsOptions::default()).unwrap();
        let filesystem = OpenOptions::new().write(true).open_devices(vec![device]).unwrap();
        let subvolume = filesystem.default_subvolume().unwrap();
        let server = Server::new(&filesystem, &subvolume, ServerOptions::default()).unwrap();
        let scratch = Scratch::new();
        let (point, image) = (scratch.path().join("mnt"), scratch.path().join("image"));
        fs::create_dir(&point).unwrap();
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let options = MountOptions { source: image.into(), io_uring, ..Default::default() };
        let mount = Mount::new(&point, server, &options).unwrap();
        let mut waiting = None;
        let begun = || {
            waiting = Some(connections.waiting(&point));
            mount.unmount(true).unwrap();
        };
        mount.serve_and(begun).unwrap();
        assert_eq!(waiting, Some(0));
    }
}

#[test]
fn the_kernel_has_its_first_answer_through_dev_fuse() {
    the_kernel_has_its_first_answer(false);
}

#[test]
fn the_kernel_has_its_first_answer_where_rings_are_offered() {
    let _offered = RingsOffered::new();
    the_kernel_has_its_first_answer(true);
}
