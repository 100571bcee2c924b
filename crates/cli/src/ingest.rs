//! Writing a tree of files from the host into an image.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use larder::{ErrorKind, Inode, NewInode, SetAttributes, Subvolume, Timestamp, XattrMode};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::extract::{Keep, umask};
use crate::interrupt;
use crate::message;
use crate::progress::Progress;
use crate::source::new_inode;

/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Copies into one subvolume.
pub struct Ingest<'a> {
    start: &'a Subvolume,
    keep: Keep,
    /// Files with several names that were copied, by device and inode number of the original.
    met: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
    written_bytes: u64,
    progress: Progress,
    failures: usize,
}

impl<'a> Ingest<'a> {
    /// Copies whose paths start in `start`.
    pub fn new(start: &'a Subvolume, keep: Keep) -> Self {
        Self {
            start,
            keep,
            met: HashMap::new(),
            buffer: vec![0; BUFFER_BYTES],
            written_bytes: 0,
            progress: Progress::of_bytes(),
            failures: 0,
        }
    }

    /// Copies the tree at `source` to `target`. Errors are reported on standard error, and the copy
    /// goes on; returns how many there were. A signal that is [watched](interrupt::watch) for ends
    /// it.
    pub fn copy(&mut self, source: &Path, target: &Path) -> anyhow::Result<usize> {
        // Directories are finished last, since creating their entries changes their times.
        let mut directories = Vec::new();
        let mut waiting = vec![(source.to_owned(), target.to_owned())];
        while let Some((source, target)) = waiting.pop() {
            interrupt::check()?;
            let copied = self.one(&source, &target, &mut waiting, &mut directories);
            interrupt::check()?;
            self.note(&source, copied);
        }
        for (source, target, metadata) in directories.into_iter().rev() {
            let finished = self
                .start
                .lookup(&target)
                .map_err(Into::into)
                .and_then(|inode| attributes(&source, &metadata, &inode));
            self.note(&source, finished);
        }
        Ok(self.failures)
    }

    fn note(&mut self, source: &Path, result: anyhow::Result<()>) {
        if let Err(error) = result {
            eprintln!("ERROR: {}: {}", source.display(), message(&error));
            self.failures += 1;
        }
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
            let new = self.new_inode(&metadata, 0o700);
            match self.start.create_inode(target, &new) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    // A symbolic link in the way is not followed.
                    self.start.lookup(target)?.into_directory()?;
                }
                made => drop(made?),
            }
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
        match self.start.remove_file(target) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let id = (metadata.dev(), metadata.ino());
        if self.keep == Keep::Everything && metadata.nlink() > 1 {
            if let Some(met_as) = self.met.get(&id) {
                return Ok(self.start.hard_link(met_as, target)?);
            }
            self.met.insert(id, target.to_owned());
        }
        let inode = self.make(source, target, &metadata)?;
        if self.keep == Keep::Everything { attributes(source, &metadata, &inode) } else { Ok(()) }
    }

    /// The attributes for creating an inode. A copy that keeps everything has these permissions
    /// until it is complete.
    fn new_inode(&self, metadata: &Metadata, at_first: u32) -> NewInode {
        match self.keep {
            Keep::Everything => new_inode(metadata.mode() & !0o7777 | at_first, 0),
            Keep::Permissions => new_inode(metadata.mode() & !0o7000, umask()),
        }
    }

    /// Creates an inode that is no directory.
    fn make(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> anyhow::Result<Inode> {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return Ok(self.start.symlink(fs::read_link(source)?, target)?);
        }
        if !kind.is_file() {
            let device = if kind.is_block_device() || kind.is_char_device() {
                let number = metadata.rdev();
                (rustix::fs::major(number), rustix::fs::minor(number))
            } else {
                (0, 0)
            };
            let new = NewInode { device, ..self.new_inode(metadata, 0o600) };
            return Ok(self.start.create_inode(target, &new)?);
        }
        let from = File::open(source)?;
        let file =
            self.start.create_inode(target, &self.new_inode(metadata, 0o600))?.into_file()?;
        self.content(&from, &file, metadata.len())?;
        Ok(file.into_inode())
    }

    /// Copies the data of a file; holes stay holes.
    fn content(&mut self, from: &File, to: &larder::File, len_bytes: u64) -> anyhow::Result<()> {
        let mut offset = 0;
        while let Some(start) = seek(from, SeekFrom::Data(offset))? {
            let end = seek(from, SeekFrom::Hole(start))?.unwrap_or(len_bytes);
            offset = start;
            while offset < end {
                interrupt::check()?;
                let want = (end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = from.read_at(&mut self.buffer[..want], offset)?;
                if len == 0 {
                    bail!("it became shorter while it was read");
                }
                to.write_at(&self.buffer[..len], offset)?;
                offset += len as u64;
                self.written_bytes += len as u64;
                self.progress.set(self.written_bytes);
            }
        }
        if to.metadata().size_bytes != len_bytes {
            to.set_len(len_bytes)?;
        }
        Ok(())
    }
}

fn attributes(source: &Path, metadata: &Metadata, inode: &Inode) -> anyhow::Result<()> {
    let is_symlink = metadata.file_type().is_symlink();
    copy_xattrs(source, inode)?;
    let time =
        |seconds: i64, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    inode.set_attributes(&SetAttributes {
        permissions: (!is_symlink).then_some(metadata.mode() & 0o7777),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        atime: Some(time(metadata.atime(), metadata.atime_nsec())),
        mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())),
        ..Default::default()
    })?;
    Ok(())
}

/// Room for the names, or for one value: the kernel's maximum.
const XATTR_BYTES: usize = 64 << 10;

fn copy_xattrs(source: &Path, inode: &Inode) -> anyhow::Result<()> {
    let mut names = vec![0; XATTR_BYTES];
    let len = match rustix::fs::llistxattr(source, &mut names) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(error).context("cannot list extended attributes"),
    };
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names: Vec<&OsStr> = names.map(OsStr::from_bytes).collect();
    drop_inherited_acls(inode, |name| names.contains(&OsStr::new(name)))?;
    for name in names {
        let mut value = vec![0; XATTR_BYTES];
        let len = rustix::fs::lgetxattr(source, name, &mut value)?;
        inode
            .set_xattr(name, &value[..len], XattrMode::Any)
            .with_context(|| format!("cannot set {}", name.display()))?;
    }
    Ok(())
}

/// Removes ACLs from a copy that it inherited and that the original does not have.
pub(crate) fn drop_inherited_acls(inode: &Inode, has: impl Fn(&str) -> bool) -> larder::Result<()> {
    const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
    ACLS.into_iter()
        .filter(|name| !has(name) && inode.xattr(name).is_ok())
        .try_for_each(|name| inode.remove_xattr(name))
}

/// Seeks data or a hole; `None` if there are no more.
fn seek(file: &File, to: SeekFrom) -> anyhow::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
