//! The operations of this crate, on a file system in memory: no root and no kernel. A module for
//! each folder of `src` that has operations. `larder/tests/in_memory` does random operations.

mod directory;
mod file;
mod inode;
mod log;
mod subvolume;
mod xattr;

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_filesystem::{ErrorKind, Filesystem, Inode, NewInode, Result, Tuning, WriteOptions};
use larder_format::objectid::FS_TREE;
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_power_cuts::assert_sound_to_larder;
use larder_volume::{OpenOptions, Volume};

const SECTOR: u64 = 4096;

/// A new file system on a device in memory, or on the state that a power cut left.
struct Disk(Arc<MemoryDevice>);

impl Disk {
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::new("disk", 256 << 20));
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        mkfs_on(&devices, &MkfsOptions::default()).expect("a file system fits");
        Self(device)
    }

    fn open(&self) -> Filesystem {
        open(self.0.clone())
    }

    /// Our checker finds no error in the committed state.
    #[track_caller]
    fn check(&self) {
        assert_sound_to_larder([&*self.0], "a disk");
    }
}

/// Opens for writing. It commits only when a test says so.
fn open(device: Arc<dyn Device>) -> Filesystem {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let volume = Volume::open(vec![device], &options).expect("it is a file system");
    let options = WriteOptions {
        cache_bytes: 16 << 20,
        commit_interval: None,
        commit_bytes: 64 << 20,
        dirty_bytes: 16 << 20,
        tuning: Tuning::default(),
        resync_progress: &|_| (),
    };
    Filesystem::open_writable(Arc::new(volume), &options).expect("its trees are there")
}

/// The root of the top level.
fn top(fs: &Filesystem) -> Inode {
    fs.subvolume(FS_TREE).and_then(|top| top.root()).expect("the top level")
}

fn new(mode: u32) -> NewInode {
    NewInode { mode, uid: 0, gid: 0, umask: 0, device: (0, 0) }
}

fn make_file(directory: &Inode, name: &str) -> Inode {
    directory.as_directory().unwrap().create(name.as_bytes(), &new(0o100_644)).unwrap()
}

fn make_directory(directory: &Inode, name: &str) -> Inode {
    directory.as_directory().unwrap().create(name.as_bytes(), &new(0o040_755)).unwrap()
}

fn lookup(directory: &Inode, name: &str) -> Result<Inode> {
    directory.as_directory()?.lookup(name.as_bytes())
}

fn write(file: &Inode, data: &[u8], offset: u64) {
    file.as_file().unwrap().write_at(data, offset).unwrap();
}

/// All content of a file.
fn read(file: &Inode) -> Vec<u8> {
    let mut data = vec![0; file.size_bytes() as usize + 1];
    let len = file.as_file().unwrap().read_at(&mut data, 0).unwrap();
    data.truncate(len);
    data
}

#[track_caller]
fn refused<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("it is refused").kind()
}
