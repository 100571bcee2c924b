//! Writing a tree of files from an image to a destination.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder_filesystem::{File, FileType, Inode, NewInode};

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
    salvages: bool,
    chooses: Box<dyn FnMut(&Path) -> bool + 'a>,
    /// Names of hard links that were not chosen, and the first one that was.
    left_out: HashMap<PathBuf, Option<PathBuf>>,
}

/// A piece that is read by itself where a larger one cannot be read.
const PIECE_BYTES: usize = 4096;

/// Parts of a file that could not be read.
#[derive(Debug, Default)]
struct Lost {
    bytes: u64,
    first: Option<(u64, larder_filesystem::Error)>,
    /// Why extents are unknown.
    extents: Option<larder_filesystem::Error>,
}

impl Lost {
    fn note(&mut self, offset: u64, bytes: usize, error: larder_filesystem::Error) {
        self.bytes += bytes as u64;
        self.first.get_or_insert((offset, error));
    }

    /// The failure, if anything is lost.
    fn into_result(self) -> anyhow::Result<()> {
        let Self { bytes, first, extents } = self;
        if let Some(error) = extents {
            return Err(error).context("part of it is lost: not all of its extents are known");
        }
        let Some((offset, error)) = first else { return Ok(()) };
        Err(error).with_context(|| format!("{bytes} bytes are lost, the first at {offset}"))
    }
}

impl<'a> Extract<'a> {
    /// A copy at `target`, a path in `destination`.
    pub fn new(
        destination: &'a mut dyn Destination,
        target: PathBuf,
        keep: Keep,
        course: Course<'a>,
    ) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        let chooses = Box::new(|_: &Path| true);
        let (salvages, left_out) = Default::default();
        Self { destination, target, keep, buffer, course, salvages, chooses, left_out }
    }

    /// Copies files of which not everything can be read: what is lost is a hole in the copy, and a
    /// failure all the same.
    #[must_use]
    pub fn salvaging(self) -> Self {
        Self { salvages: true, ..self }
    }

    /// Copies only what `chooses` wants, a path from the start; nothing below a directory that it
    /// does not want.
    #[must_use]
    pub fn choosing(self, chooses: impl FnMut(&Path) -> bool + 'a) -> Self {
        Self { chooses: Box::new(chooses), ..self }
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

    /// Copies a file without its attributes. Returns what is lost of it.
    fn file(&mut self, target: &Path, inode: &Inode, mode: u32) -> anyhow::Result<Lost> {
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
    fn content(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<Lost> {
        let file = inode.clone().into_file()?;
        let (ranges, extents) = match file.data_ranges() {
            Err(_) if self.salvages => file.data_ranges_left(),
            ranges => (ranges?, None),
        };
        let mut lost = Lost { extents, ..Lost::default() };
        let mut written_to = 0;
        for range in ranges {
            let mut offset = range.start;
            while offset < range.end {
                let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = self.piece(&file, target, offset, want, &mut lost)?;
                offset += len as u64;
                self.course.advance(len as u64)?;
            }
            written_to = range.end;
        }
        let len_bytes = file.len_bytes();
        if written_to != len_bytes || lost.first.is_some() {
            self.destination.set_len(target, len_bytes)?;
        }
        Ok(lost)
    }

    /// Copies up to `want` bytes at `offset`. Returns how many are done with.
    fn piece(
        &mut self,
        file: &File,
        target: &Path,
        offset: u64,
        want: usize,
        lost: &mut Lost,
    ) -> anyhow::Result<usize> {
        let len = match file.read_at(&mut self.buffer[..want], offset) {
            Err(_) if self.salvages && want > PIECE_BYTES => {
                let mut done = 0;
                while done < want {
                    let piece = PIECE_BYTES.min(want - done);
                    done += self.piece(file, target, offset + done as u64, piece, lost)?;
                }
                return Ok(done);
            }
            Err(error) if self.salvages => {
                lost.note(offset, want, error);
                return Ok(want);
            }
            read => read?,
        };
        if len == 0 {
            bail!("the file ends at {offset}, before its size");
        }
        self.destination.write(target, &self.buffer[..len], offset)?;
        Ok(len)
    }

    fn finish(&mut self, target: &Path, inode: &Inode) -> anyhow::Result<()> {
        if self.keep != Keep::Everything {
            return Ok(());
        }
        let (attributes, lost) = attributes_of(inode);
        let lost = match lost {
            Some(error) if !self.salvages => return Err(error.into()),
            lost => lost,
        };
        self.course.finish(self.destination, target, attributes)?;
        lost.map_or(Ok(()), |error| Err(error).context("an extended attribute is lost"))
    }
}

impl Visitor for Extract<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.course.check()?;
        if !(self.chooses)(node.path) {
            return Ok(false);
        }
        let new = self.keep.new_inode(node.inode.metadata().mode, 0o700);
        self.destination.make_directory(&self.target_of(node.path), &new)?;
        self.course.count();
        Ok(true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.course.check()?;
        if !(self.chooses)(node.path) {
            if node.met_as.is_none() && node.inode.metadata().nlink > 1 {
                self.left_out.insert(node.path.to_owned(), None);
            }
            return Ok(());
        }
        self.visit_one(node)?;
        self.course.count();
        Ok(())
    }

    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.finish(&self.target_of(node.path), node.inode)?;
        ensure!(!node.inode.is_lost(), "its owner, mode and times are lost");
        expect_certain(node.inode, "names in it may be missing")
    }
}

impl Extract<'_> {
    fn visit_one(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        let target = self.target_of(node.path);
        if let (Keep::Everything, Some(met_as)) = (self.keep, node.met_as) {
            let original = match self.left_out.get_mut(met_as) {
                None => Some(met_as.to_owned()),
                Some(chosen) => chosen.replace(node.path.to_owned()),
            };
            if let Some(original) = original {
                return self.destination.link(&target, &self.target_of(&original));
            }
        }
        let metadata = node.inode.metadata();
        let mut lost = Lost::default();
        match metadata.file_type {
            FileType::Regular => lost = self.file(&target, node.inode, metadata.mode)?,
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
        self.finish(&target, node.inode)?;
        lost.into_result()?;
        expect_certain(node.inode, "parts of it may be missing or out of date")
    }
}

/// Fails if lost blocks may have said something else of an inode.
fn expect_certain(inode: &Inode, doubt: &str) -> anyhow::Result<()> {
    ensure!(!inode.is_in_doubt(), "a tree block is lost that had items of it: {doubt}");
    Ok(())
}

/// The attributes that can be read, and the first error.
fn attributes_of(inode: &Inode) -> (Attributes, Option<larder_filesystem::Error>) {
    let (mut xattrs, mut first) = (Vec::new(), None);
    for xattr in inode.xattrs() {
        match xattr {
            Ok(xattr) => xattrs.push(xattr),
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    (Attributes::of(&inode.metadata(), xattrs), first)
}
