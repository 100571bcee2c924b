//! The operations of this crate, on a file system in memory: no root and no kernel. A module for
//! each folder of `src` that has operations. `larder/tests/in_memory` does random operations.

mod directory;
mod file;
mod filesystem;
mod inode;
mod log;
mod subvolume;
mod xattr;

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_filesystem::{
    Directory, ErrorKind, File, Filesystem, Inode, NewInode, Result, Tuning, WriteOptions,
};
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
    options.open(Arc::new(volume)).expect("its trees are there")
}

/// The root of the top level.
fn top(fs: &Filesystem) -> Directory {
    fs.subvolume("/").and_then(|top| top.root()).expect("the top level")
}

fn new(mode: u32) -> NewInode {
    NewInode { mode, uid: 0, gid: 0, umask: 0, device: (0, 0) }
}

fn make_file(directory: &Directory, name: &str) -> File {
    let made = directory.create_child(name.as_ref(), &new(0o100_644)).unwrap();
    made.into_file().unwrap()
}

fn make_directory(directory: &Directory, name: &str) -> Directory {
    let made = directory.create_child(name.as_ref(), &new(0o040_755)).unwrap();
    made.into_directory().unwrap()
}

fn lookup(directory: &Directory, name: &str) -> Result<Inode> {
    directory.child(name.as_ref())
}

fn open_file(directory: &Directory, name: &str) -> File {
    lookup(directory, name).and_then(Inode::into_file).unwrap()
}

fn write(file: &File, data: &[u8], offset: u64) {
    file.write_at(data, offset).unwrap();
}

/// All content of a file.
fn read(file: &File) -> Vec<u8> {
    let mut data = vec![0; file.size_bytes() as usize + 1];
    let len = file.read_at(&mut data, 0).unwrap();
    data.truncate(len);
    data
}

#[track_caller]
fn refused<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("it is refused").kind()
}
