//! Copies of what lies on a mount of larder: its server walks the tree.
//!
//! # Invariants
//! - Content and attributes of a copy are those of one inode: a file that this process opens itself
//!   is the one that the server found, whatever other users do with names meanwhile.

use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use larder::commands::Original;
use larder::{FileType, Metadata, NewInode, WalkOptions, Walked, Xattr};
use larder_copy::{Attributes, Keep, below, check_name};
use larder_ioctl::channel::node_of;
use larder_platform::HostTree;
use rustix::fs::Stat;

use super::Ingest;
use crate::on_mount::{Walk, resolved};

/// A copy in progress.
struct Copy {
    walk: Walk,
    /// The same tree, for files that this process reads itself, and the place of the top in it.
    tree: (HostTree, PathBuf),
    /// The path of the copy.
    target: PathBuf,
    /// Where the destination begins, if the copies share data: it cannot be among the originals.
    start: Option<(u64, u64)>,
    /// The directory whose entries come, from the top of the tree; none if that is a file.
    directory: Option<PathBuf>,
    /// Directories that are being filled, each in the one before it, and their attributes.
    open: Vec<(PathBuf, Attributes)>,
    /// A directory that cannot be copied.
    left_out: Option<PathBuf>,
    /// The file that was copied last.
    last: Option<PathBuf>,
}

/// An inode that is no directory.
struct SourceFile {
    metadata: Metadata,
    link: OsString,
    xattrs: Vec<Xattr>,
    ranges: Vec<Range<u64>>,
}

impl Copy {
    fn target_of(&self, path: &Path) -> PathBuf {
        below(&self.target, path)
    }

    /// Opens the file at `path`, which is the inode `id`, a subvolume and a number.
    fn open_file(&mut self, path: &Path, id: (u64, u64)) -> anyhow::Result<(File, Stat)> {
        let (tree, top) = &mut self.tree;
        let (file, status) = tree.file(&below(top, path))?;
        let node = node_of(&file)?.map(|node| (node.subvolume, node.inode));
        ensure!(node == Some(id), "another inode took its place meanwhile");
        Ok((file, status))
    }

    /// Whether `path` lies in the directory that is left out.
    fn leaves_out(&self, path: &Path) -> bool {
        self.left_out.as_ref().is_some_and(|left_out| path.starts_with(left_out))
    }
}

impl Ingest<'_> {
    /// Copies the tree at `source` to `target`, if its server can walk it. Returns whether it can.
    pub(super) fn copy_walked(&mut self, source: &Path, target: &Path) -> anyhow::Result<bool> {
        let mut start = None;
        let xattrs = self.copies.keep() == Keep::Everything;
        let options = |directory: BorrowedFd<'_>| {
            start = self.copies.destination().start_beside(directory);
            let data = start.is_none();
            WalkOptions { below: true, targets: true, xattrs, data, written: true }
        };
        let Ok(top) = resolved(source, false) else { return Ok(false) };
        let Some(walk) = Walk::try_begin(&top, options) else { return Ok(false) };
        let tree = HostTree::containing(&top)?;
        let target = target.to_owned();
        let (directory, open, left_out, last) = Default::default();
        let mut copy = Copy { walk, tree, target, start, directory, open, left_out, last };
        while let Some(walked) = copy.walk.next()? {
            match walked {
                Walked::Directory { path, metadata, xattrs } => {
                    let path = PathBuf::from(path);
                    self.finish_outside(&mut copy, source, Some(&path))?;
                    if !copy.leaves_out(&path) {
                        let entered = self.enter(&mut copy, &path, &metadata, xattrs);
                        if entered.is_err() {
                            copy.left_out = Some(path.clone());
                        }
                        self.copies.note(&below(source, &path), &copy.target_of(&path), entered)?;
                    }
                    copy.directory = Some(path);
                }
                Walked::Entry { metadata, .. } if metadata.file_type == FileType::Directory => {}
                Walked::Entry { name, metadata, target, xattrs, ranges } => {
                    let path = match &copy.directory {
                        Some(directory) if copy.leaves_out(directory) => continue,
                        Some(directory) => directory.join(&name),
                        None => PathBuf::new(),
                    };
                    let found = SourceFile { metadata, link: target, xattrs, ranges };
                    let original = below(source, &path);
                    let copied =
                        check_name(&name).and_then(|()| self.found(&mut copy, &path, found));
                    self.copies.note(&original, &copy.target_of(&path), copied)?;
                }
                Walked::Failed { path, .. } => {
                    // Its data was zeros.
                    if let Some(last) = copy.last.take_if(|last| last.as_os_str() == path) {
                        self.copies.destination().discard(&copy.target_of(&last))?;
                    }
                }
            }
        }
        self.finish_outside(&mut copy, source, None)?;
        self.unread += copy.walk.failures();
        Ok(true)
    }

    fn enter(
        &mut self,
        copy: &mut Copy,
        path: &Path,
        metadata: &Metadata,
        xattrs: Vec<Xattr>,
    ) -> anyhow::Result<()> {
        path.iter().try_for_each(check_name)?;
        let is_start = copy.start == Some((metadata.subvolume, metadata.inode));
        ensure!(!is_start, "its copy would lie in itself");
        let new = self.copies.keep().new_inode(metadata.mode, 0o700);
        self.copies.destination().make_directory(&copy.target_of(path), &new)?;
        if self.copies.keep() == Keep::Everything {
            copy.open.push((path.to_owned(), Attributes::of(metadata, xattrs)));
        }
        Ok(())
    }

    /// Finishes the directories that do not contain `path`; without a path, all.
    fn finish_outside(
        &mut self,
        copy: &mut Copy,
        source: &Path,
        path: Option<&Path>,
    ) -> anyhow::Result<()> {
        let is_outside = |(open, _): &mut (PathBuf, Attributes)| {
            !path.is_some_and(|path| path.starts_with(open))
        };
        while let Some((open, attributes)) = copy.open.pop_if(is_outside) {
            let target = copy.target_of(&open);
            let finished = self.copies.give(&target, attributes);
            self.copies.note(&below(source, &open), &target, finished)?;
        }
        Ok(())
    }

    /// Copies the inode at `path` in the tree, which is no directory.
    fn found(&mut self, copy: &mut Copy, path: &Path, found: SourceFile) -> anyhow::Result<()> {
        let SourceFile { metadata, link, xattrs, ranges } = found;
        let target = copy.target_of(path);
        let id = (metadata.subvolume, metadata.inode);
        let has_names = self.copies.keep() == Keep::Everything && metadata.nlink > 1;
        if let Some(met_as) = self.walked.get(&id).filter(|_| has_names) {
            return self.copies.destination().link(&target, met_as);
        }
        match metadata.file_type {
            FileType::Regular => {
                let overwrites = {
                    let keep = self.copies.keep();
                    self.copies.destination().overwrite_file(&target, keep)
                }?;
                if !overwrites {
                    let new = self.copies.keep().new_inode(metadata.mode, 0o600);
                    self.copies.destination().make_file(&target, &new)?;
                }
                if copy.start.is_none() {
                    copy.last = Some(path.to_owned());
                    let written = self.walked_content(&mut copy.walk, &target, &metadata, &ranges);
                    if written.is_err() {
                        self.copies.destination().discard(&target)?;
                    }
                    written?;
                } else if overwrites {
                    let (file, status) = copy.open_file(path, id)?;
                    self.copies.content_of(&file, &target, &status)?;
                } else {
                    let original = Original { subvolume: id.0, inode: id.1 };
                    self.copies.destination().share(&target, original)?;
                    self.copies.course().advance(metadata.size_bytes)?;
                }
            }
            FileType::Symlink => self.copies.destination().make_symlink(&target, &link)?,
            _ => {
                let new = self.copies.keep().new_inode(metadata.mode, 0o600);
                let new = NewInode { device: metadata.device, ..new };
                self.copies.destination().make_node(&target, &new)?;
            }
        }
        if self.copies.keep() == Keep::Everything {
            self.copies.give(&target, Attributes::of(&metadata, xattrs))?;
        }
        if has_names {
            self.walked.insert(id, target);
        }
        Ok(())
    }

    /// Copies the data of a file; holes stay holes.
    fn walked_content(
        &mut self,
        walk: &mut Walk,
        target: &Path,
        metadata: &Metadata,
        ranges: &[Range<u64>],
    ) -> anyhow::Result<()> {
        while let Some(offset) = walk.read(&mut self.buffer)? {
            self.copies.destination().write(target, &self.buffer, offset)?;
            self.copies.course().advance(self.buffer.len() as u64)?;
        }
        let written_to = ranges.last().map_or(0, |range| range.end);
        if written_to < metadata.size_bytes {
            self.copies.destination().set_len(target, metadata.size_bytes)?;
        }
        Ok(())
    }
}
