//! A file system opened and read through the public API.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder::device::Device;
use larder::{Directory, File, FileType, Filesystem, Inode, OpenOptions, Subvolume};

use crate::Image;

/// The cache that the file system is opened with.
pub const CACHE_BYTES: usize = 1 << 20;

/// The most inodes that one walk visits by their names, and the most bytes that it reads.
const MOST_INODES: usize = 500;
const MOST_BYTES: usize = 2 << 20;
const BUFFER_BYTES: usize = 160 << 10;

/// Opens `image` with patches from `bytes` and reads as much as possible, ignoring errors.
pub fn open_and_walk(image: &Image, bytes: &[u8]) {
    walk(image.patched(bytes));
}

fn walk(device: Arc<dyn Device>) {
    let options = OpenOptions::new().cache_bytes(CACHE_BYTES);
    let Ok(fs) = options.open_devices(vec![device]) else { return };
    let mut walk = Walk { visited: HashSet::new(), bytes_left: MOST_BYTES, buffer: Vec::new() };
    walk.filesystem(&fs);
}

struct Walk {
    /// Subvolumes and numbers of visited inodes: hostile directories go in circles.
    visited: HashSet<(u64, u64)>,
    bytes_left: usize,
    buffer: Vec<u8>,
}

impl Walk {
    fn filesystem(&mut self, fs: &Filesystem) {
        let _ = (fs.label(), fs.uuid(), fs.devices(), fs.default_subvolume());
        let _ = fs.space();
        let _ = larder::accounting::Accounting::of(fs, &mut |_| ControlFlow::Continue(()));
        for info in fs.subvolumes().flatten() {
            let _ = fs.subvolume_path(info.id);
            if let Ok(subvolume) = fs.subvolume_by_id(info.id) {
                self.subvolume(&subvolume);
            }
        }
    }

    fn subvolume(&mut self, subvolume: &Subvolume) {
        let mut paths = subvolume.paths();
        for inode in subvolume.scan().flatten() {
            for link in &inode.links {
                let _ = paths.of(link);
            }
        }
        let mut pending: Vec<Directory> = subvolume.root().into_iter().collect();
        while let Some(directory) = pending.pop() {
            let Ok(entries) = directory.entries() else { continue };
            for entry in entries.flatten() {
                let _ = directory.lookup(entry.name());
                let Ok(inode) = entry.open() else { continue };
                let key = (inode.subvolume().id(), inode.number());
                if self.visited.len() >= MOST_INODES || !self.visited.insert(key) {
                    continue;
                }
                pending.extend(self.inode(inode));
            }
        }
    }

    /// Reads everything about an inode; returns it if it is a directory to visit.
    fn inode(&mut self, inode: Inode) -> Option<Directory> {
        let _ = (inode.metadata(), inode.links(), inode.paths());
        for xattr in inode.xattrs().flatten() {
            let _ = inode.xattr(&xattr.name);
        }
        match inode.file_type() {
            FileType::Directory => inode.into_directory().ok(),
            FileType::Symlink => {
                let _ = inode.link_target();
                None
            }
            FileType::Regular => {
                if let Ok(file) = inode.into_file() {
                    self.file(&file);
                }
                None
            }
            _ => None,
        }
    }

    /// Reads the start of each range of data: files may claim to be very long.
    fn file(&mut self, file: &File) {
        self.buffer.resize(BUFFER_BYTES, 0);
        let _ = file.read_at(&mut self.buffer, file.len_bytes().saturating_sub(5));
        let Ok(ranges) = file.data_ranges() else { return };
        for range in ranges {
            if self.bytes_left < BUFFER_BYTES {
                return;
            }
            self.bytes_left -= BUFFER_BYTES;
            let _ = file.read_at(&mut self.buffer, range.start);
        }
    }
}
