//! Copying a tree of files of this machine.

mod walked;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use larder::{NewInode, Timestamp};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::destination::{Attributes, Destination};
use crate::extract::Keep;
use crate::interrupt;
use crate::message;
use crate::on_mount::{self, Gone};
use crate::progress::Progress;

/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// In files up to this length, looking for data takes longer than copying a few zeros.
const SHORT_BYTES: u64 = 64 << 10;
/// The unit in which the kernel counts the space of a file.
const BLOCK_BYTES: u64 = 512;

/// Copies to one destination.
pub struct Ingest<'a> {
    destination: &'a mut dyn Destination,
    keep: Keep,
    /// Files with several names that were copied, by device and inode number of the original.
    met: HashMap<(u64, u64), PathBuf>,
    /// The same for those that the server of their mount read, by subvolume and number.
    walked: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
    written_bytes: u64,
    progress: Progress,
    failures: usize,
}

impl<'a> Ingest<'a> {
    pub fn new(destination: &'a mut dyn Destination, keep: Keep) -> Self {
        Self {
            destination,
            keep,
            met: HashMap::new(),
            walked: HashMap::new(),
            buffer: Vec::new(),
            written_bytes: 0,
            progress: Progress::of_bytes(),
            failures: 0,
        }
    }

    /// Says which trees will be copied, so that a terminal can show how much is left.
    pub fn expect(mut self, sources: &[OsString]) -> Self {
        let sources = sources.iter().map(PathBuf::from).collect();
        self.progress = Progress::of_bytes().counting(move || Some(bytes_in(sources)));
        self
    }

    /// Copies the tree at `source` to `target`. Errors are reported on standard error, and the copy
    /// goes on; returns how many there were. A signal that is [watched](interrupt::watch) for ends
    /// it.
    pub fn copy(&mut self, source: &Path, target: &Path) -> anyhow::Result<usize> {
        if self.copy_walked(source, target)? {
            return Ok(self.failures);
        }
        self.buffer.resize(BUFFER_BYTES, 0);
        // Directories are finished last, since creating their entries changes their times.
        let mut directories = Vec::new();
        let mut waiting = vec![(source.to_owned(), target.to_owned())];
        while let Some((source, target)) = waiting.pop() {
            interrupt::check()?;
            let copied = self.one(&source, &target, &mut waiting, &mut directories);
            interrupt::check()?;
            self.note(&source, copied)?;
        }
        for (source, target, metadata) in directories.into_iter().rev() {
            let original = Original { path: &source, open: None, metadata: &metadata };
            let finished = self.finish(&original, &target);
            self.note(&source, finished)?;
        }
        Ok(self.failures)
    }

    /// How many errors were reported.
    pub fn failures(&self) -> usize {
        self.failures
    }

    fn note(&mut self, source: &Path, result: anyhow::Result<()>) -> anyhow::Result<()> {
        if let Err(error) = result {
            if Gone::is_behind(&error) {
                return Err(error);
            }
            eprintln!("ERROR: {}: {}", source.display(), message(&error));
            self.failures += 1;
        }
        Ok(())
    }

    fn one(
        &mut self,
        source: &Path,
        target: &Path,
        waiting: &mut Vec<(PathBuf, PathBuf)>,
        directories: &mut Vec<(PathBuf, PathBuf, Metadata)>,
    ) -> anyhow::Result<()> {
        let metadata = fs::symlink_metadata(source)?;
        if metadata.is_dir() {
            self.destination
                .make_directory(target, &self.keep.new_inode(metadata.mode(), 0o700))?;
            let mut names = fs::read_dir(source)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<anyhow::Result<Vec<OsString>>>()?;
            // In the order of names: the last one waiting comes first.
            names.sort_by(|a, b| b.cmp(a));
            waiting.extend(names.iter().map(|name| (source.join(name), target.join(name))));
            if self.keep == Keep::Everything {
                directories.push((source.to_owned(), target.to_owned(), metadata));
            }
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        if self.keep == Keep::Everything && metadata.nlink() > 1 {
            if let Some(met_as) = self.met.get(&id) {
                return self.destination.link(target, met_as);
            }
            self.met.insert(id, target.to_owned());
        }
        let open = self.make(source, target, &metadata)?;
        let original = Original { path: source, open: open.as_ref(), metadata: &metadata };
        match self.keep {
            Keep::Everything => self.finish(&original, target),
            Keep::Permissions => Ok(()),
        }
    }

    /// Creates an inode that is no directory, and copies its content. Returns the original if it
    /// is a file.
    fn make(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> anyhow::Result<Option<File>> {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            self.destination.make_symlink(target, fs::read_link(source)?.as_os_str())?;
            return Ok(None);
        }
        if !kind.is_file() {
            let device = if kind.is_block_device() || kind.is_char_device() {
                let number = metadata.rdev();
                (rustix::fs::major(number), rustix::fs::minor(number))
            } else {
                (0, 0)
            };
            let new = NewInode { device, ..self.keep.new_inode(metadata.mode(), 0o600) };
            self.destination.make_node(target, &new)?;
            return Ok(None);
        }
        let from = File::open(source)?;
        self.destination.make_file(target, &self.keep.new_inode(metadata.mode(), 0o600))?;
        self.content(&from, target, metadata)?;
        Ok(Some(from))
    }

    /// Copies the data of a file; holes and preallocated space become holes, except in short files.
    fn content(&mut self, from: &File, target: &Path, metadata: &Metadata) -> anyhow::Result<()> {
        let len_bytes = metadata.len();
        let has_space_for_all = metadata.blocks() * BLOCK_BYTES >= len_bytes;
        if has_space_for_all && len_bytes <= SHORT_BYTES {
            return self.range(from, target, 0..len_bytes);
        }
        let mut written_to = 0;
        while let Some(start) = seek(from, SeekFrom::Data(written_to))? {
            let end = seek(from, SeekFrom::Hole(start))?.unwrap_or(len_bytes);
            self.range(from, target, start..end)?;
            written_to = end;
        }
        if written_to != len_bytes {
            self.destination.set_len(target, len_bytes)?;
        }
        Ok(())
    }

    /// Copies a range of the data of a file.
    fn range(&mut self, from: &File, target: &Path, range: Range<u64>) -> anyhow::Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            interrupt::check()?;
            let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
            let len = from.read_at(&mut self.buffer[..want], offset)?;
            if len == 0 {
                bail!("it became shorter while it was read");
            }
            self.destination.write(target, &self.buffer[..len], offset)?;
            offset += len as u64;
            self.advance(len as u64);
        }
        Ok(())
    }

    /// Notes that so many bytes more are copied.
    fn advance(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.progress.set(self.written_bytes);
    }

    fn finish(&mut self, original: &Original<'_>, target: &Path) -> anyhow::Result<()> {
        self.destination.finish(target, original.attributes()?)
    }
}

/// The bytes of all files in some trees, as far as they can be read.
fn bytes_in(mut paths: Vec<PathBuf>) -> u64 {
    let mut bytes = 0;
    while let Some(path) = paths.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_file() {
            bytes += metadata.len();
        } else if let Some(below) = on_mount::count_bytes(&path).filter(|_| metadata.is_dir()) {
            bytes += below;
        } else if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            paths.extend(entries.map(|entry| entry.path()));
        }
    }
    bytes
}

/// Room for the names, or for one value: the kernel's maximum.
const XATTR_BYTES: usize = 64 << 10;

/// An inode of the host.
struct Original<'o> {
    path: &'o Path,
    /// The inode itself, if it is a file.
    open: Option<&'o File>,
    metadata: &'o Metadata,
}

impl Original<'_> {
    fn attributes(&self) -> anyhow::Result<Attributes> {
        let metadata = self.metadata;
        let is_symlink = metadata.file_type().is_symlink();
        let time =
            |seconds: i64, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        Ok(Attributes {
            permissions: (!is_symlink).then_some(metadata.mode() & 0o7777),
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            atime: Some(time(metadata.atime(), metadata.atime_nsec())),
            mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())),
            xattrs: Some(self.xattrs()?),
        })
    }

    fn xattrs(&self) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
        // Most inodes have none, or few.
        let mut few = [0; 256];
        let mut many = Vec::new();
        let names = match self.list_xattrs(&mut few) {
            Ok(len) => &few[..len],
            Err(Errno::NOTSUP) => &[],
            Err(Errno::RANGE) => {
                many.resize(XATTR_BYTES, 0);
                let len = self.list_xattrs(&mut many);
                &many[..len.context("cannot list extended attributes")?]
            }
            Err(error) => return Err(error).context("cannot list extended attributes"),
        };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let name = OsStr::from_bytes(name);
                let mut value = vec![0; XATTR_BYTES];
                let len = self.get_xattr(name, &mut value)?;
                value.truncate(len);
                Ok((name.to_owned(), value))
            })
            .collect()
    }

    fn list_xattrs(&self, names: &mut [u8]) -> rustix::io::Result<usize> {
        match self.open {
            Some(file) => rustix::fs::flistxattr(file, names),
            None => rustix::fs::llistxattr(self.path, names),
        }
    }

    fn get_xattr(&self, name: &OsStr, value: &mut [u8]) -> rustix::io::Result<usize> {
        match self.open {
            Some(file) => rustix::fs::fgetxattr(file, name, value),
            None => rustix::fs::lgetxattr(self.path, name, value),
        }
    }
}

/// Seeks data or a hole; `None` if there are no more.
fn seek(file: &File, to: SeekFrom) -> anyhow::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
