//! Writing a tree of files from an image to a destination.

use std::path::{Path, PathBuf};

use anyhow::bail;
use larder_filesystem::{FileType, Inode, NewInode};

use crate::course::Course;
use crate::destination::{Attributes, Destination};
use crate::host::{BUFFER_BYTES, below};
use crate::keep::Keep;
use crate::tree::{Visited, Visitor, walk};

/// Writes the inodes of a walk.
pub struct Extract<'a> {
    destination: &'a mut dyn Destination,
    /// The path of the copy there.
    target: PathBuf,
    keep: Keep,
    buffer: Vec<u8>,
    course: Course<'a>,
}

impl<'a> Extract<'a> {
    /// A copy at `target`, a path in `destination`.
    pub fn new(
        destination: &'a mut dyn Destination,
        target: PathBuf,
        keep: Keep,
        course: Course<'a>,
    ) -> Self {
        Self { destination, target, keep, buffer: vec![0; BUFFER_BYTES], course }
    }

    /// Copies `start` and what is below. Users call it `shown`.
    ///
    /// # Errors
    /// The copy ends before it is complete.
    pub fn copy(&mut self, start: &Inode, shown: &Path) -> anyhow::Result<()> {
        let from = |path: &Path| below(shown, path);
        walk(start, self, |extract, path, result| {
            let target = extract.destination.shown(&extract.target_of(path));
            extract.course.note(&from(path), &target, result)
        })
    }

    /// How far the copy is.
    pub fn into_course(self) -> Course<'a> {
        self.course
    }

    fn target_of(&self, path: &Path) -> PathBuf {
        below(&self.target, path)
    }

    fn file(&mut self, target: &Path, inode: &Inode, mode: u32) -> anyhow::Result<()> {
        if !self.destination.overwrite_file(target, self.keep)? {
            self.destination.make_file(target, &self.keep.new_inode(mode, 0o600))?;
        }
        let copied = self.content(target, inode);
        if copied.is_err() {
            self.destination.discard(target)?;
        }
        copied
    }

    /// Copies the data of a file; holes stay holes.
    fn content(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<()> {
        let file = inode.clone().into_file()?;
        let mut written_to = 0;
        for range in file.data_ranges()? {
            let mut offset = range.start;
            while offset < range.end {
                let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = file.read_at(&mut self.buffer[..want], offset)?;
                if len == 0 {
                    bail!("the file ends at {offset}, before its size");
                }
                self.destination.write(target, &self.buffer[..len], offset)?;
                offset += len as u64;
                self.course.advance(len as u64)?;
            }
            written_to = range.end;
        }
        let len_bytes = file.len_bytes();
        if written_to == len_bytes { Ok(()) } else { self.destination.set_len(target, len_bytes) }
    }

    fn finish(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<()> {
        if self.keep != Keep::Everything {
            return Ok(());
        }
        self.course.finish(self.destination, target, attributes_of(inode)?)
    }
}

impl Visitor for Extract<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.course.check()?;
        let new = self.keep.new_inode(node.inode.metadata().mode, 0o700);
        self.destination.make_directory(&self.target_of(node.path), &new)?;
        self.course.count();
        Ok(true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.course.check()?;
        self.visit_one(node)?;
        self.course.count();
        Ok(())
    }

    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.finish(&self.target_of(node.path), node.inode)
    }
}

impl Extract<'_> {
    fn visit_one(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        let target = self.target_of(node.path);
        if let (Keep::Everything, Some(met_as)) = (self.keep, node.met_as) {
            return self.destination.link(&target, &self.target_of(met_as));
        }
        let metadata = node.inode.metadata();
        match metadata.file_type {
            FileType::Regular => self.file(&target, node.inode, metadata.mode)?,
            FileType::Symlink => {
                let link = node.inode.link_target()?;
                self.destination.make_symlink(&target, link.as_os_str())?;
            }
            _ => {
                let new = self.keep.new_inode(metadata.mode, 0o600);
                let new = NewInode { device: metadata.device, ..new };
                self.destination.make_node(&target, &new)?;
            }
        }
        self.finish(&target, node.inode)
    }
}

fn attributes_of(inode: &Inode) -> anyhow::Result<Attributes> {
    let xattrs = inode.xattrs().collect::<larder_filesystem::Result<Vec<_>>>()?;
    Ok(Attributes::of(&inode.metadata(), xattrs))
}
