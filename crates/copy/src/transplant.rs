//! Copying a tree of files from an image into an image, the same one or another.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder_filesystem::{
    ErrorKind, File, FileType, Inode, NewInode, SetAttributes, Subvolume, XattrMode,
};
use larder_format::OwnerMap;

use crate::course::Course;
use crate::host::{BUFFER_BYTES, below};
use crate::image::{drop_inherited_acls, overwritten};
use crate::keep::Keep;
use crate::tree::{Visited, Visitor, walk};

/// Copies the inodes of a walk into one subvolume.
pub struct Transplant<'a> {
    start: &'a Subvolume,
    /// The path of the copy.
    target: PathBuf,
    keep: Keep,
    /// To the ids of the copy.
    map: OwnerMap,
    /// Whether original and copy lie in one file system, so that they can share data and can be the
    /// same.
    is_same_filesystem: bool,
    /// Subvolume and number of each directory that was copied to: none of them may be an original.
    directories: HashSet<(u64, u64)>,
    buffer: Vec<u8>,
    course: Course<'a>,
}

impl<'a> Transplant<'a> {
    /// A copy at the path `target` from `start`.
    pub fn new(
        start: &'a Subvolume,
        target: PathBuf,
        keep: Keep,
        map: OwnerMap,
        is_same_filesystem: bool,
        course: Course<'a>,
    ) -> Self {
        Self {
            start,
            target,
            keep,
            map,
            is_same_filesystem,
            directories: HashSet::new(),
            buffer: vec![0; BUFFER_BYTES],
            course,
        }
    }

    /// Copies `original` and what is below. Users call it `shown`, and the copy `shown_copy`.
    ///
    /// # Errors
    /// The copy ends before it is complete.
    pub fn copy(
        &mut self,
        original: &Inode,
        shown: &Path,
        shown_copy: &Path,
    ) -> anyhow::Result<()> {
        walk(original, self, |transplant, path, result| {
            transplant.course.note(&below(shown, path), &below(shown_copy, path), result)
        })
    }

    /// How far the copy is.
    pub fn into_course(self) -> Course<'a> {
        self.course
    }

    fn target_of(&self, path: &Path) -> PathBuf {
        below(&self.target, path)
    }

    /// The attributes for creating an inode. A copy that keeps everything has these permissions
    /// until it is complete.
    fn new_inode(&self, original: &Inode, at_first: u32) -> NewInode {
        let metadata = original.metadata();
        NewInode { device: metadata.device, ..self.keep.new_inode(metadata.mode, at_first) }
    }

    /// Removes an inode in the way of a copy of `original`, unless it is that itself. Returns a
    /// file that the copy overwrites instead.
    fn make_way(&self, original: &Inode, target: &Path) -> anyhow::Result<Option<Inode>> {
        let is_same = |found: &Inode| self.is_same_filesystem && id(found) == id(original);
        let expect_other = |found: &Inode| {
            ensure!(!is_same(found), "they are the same file");
            Ok(())
        };
        if original.file_type() == FileType::Regular
            && let Some(found) = overwritten(self.start, target, self.keep)?
        {
            return expect_other(&found).map(|()| Some(found));
        }
        match self.start.lookup(target) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(found) => {
                expect_other(&found)?;
                Ok(self.start.remove_file(target).map(|()| None)?)
            }
        }
    }

    /// Makes a copy, or overwrites `found`.
    fn make(
        &mut self,
        original: &Inode,
        target: &Path,
        found: Option<Inode>,
    ) -> anyhow::Result<Inode> {
        if original.file_type() == FileType::Symlink {
            return Ok(self.start.symlink(original.link_target()?, target)?);
        }
        let made = match found {
            Some(found) => {
                found.clone().into_file()?.set_len(0)?;
                found
            }
            None => self.start.create_inode(target, &self.new_inode(original, 0o600))?,
        };
        if original.file_type() != FileType::Regular {
            return Ok(made);
        }
        let (original, copy) = (original.clone().into_file()?, made.into_file()?);
        let len_bytes = original.len_bytes();
        let shares =
            self.is_same_filesystem && copy.clone_range(&original, 0, len_bytes, 0).is_ok();
        if !shares {
            copy.set_len(0)?;
            self.content(&original, &copy)?;
        }
        Ok(copy.into_inode())
    }

    /// Copies the data of a file; holes stay holes.
    fn content(&mut self, original: &File, copy: &File) -> anyhow::Result<()> {
        for range in original.data_ranges()? {
            let mut offset = range.start;
            while offset < range.end {
                let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = original.read_at(&mut self.buffer[..want], offset)?;
                if len == 0 {
                    bail!("the file ends at {offset}, before its size");
                }
                copy.write_at(&self.buffer[..len], offset)?;
                offset += len as u64;
                self.course.advance(len as u64)?;
            }
        }
        if copy.len_bytes() != original.len_bytes() {
            copy.set_len(original.len_bytes())?;
        }
        Ok(())
    }
}

impl Visitor for Transplant<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.course.check()?;
        ensure!(!self.directories.contains(&id(node.inode)), "its copy would lie in itself");
        let target = self.target_of(node.path);
        let directory = match self.start.create_inode(&target, &self.new_inode(node.inode, 0o700)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // A symbolic link in the way is not followed.
                self.start.lookup(&target)?.into_directory()?.into_inode()
            }
            made => made?,
        };
        if self.is_same_filesystem {
            self.directories.insert(id(&directory));
        }
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
        if self.keep != Keep::Everything {
            return Ok(());
        }
        attributes(node.inode, &self.start.lookup(self.target_of(node.path))?, &self.map)
    }
}

impl Transplant<'_> {
    fn visit_one(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        let target = self.target_of(node.path);
        if let (Keep::Everything, Some(met_as)) = (self.keep, node.met_as) {
            if self.start.lookup(&target).is_ok() {
                self.start.remove_file(&target)?;
            }
            return Ok(self.start.hard_link(self.target_of(met_as), target)?);
        }
        let found = self.make_way(node.inode, &target)?;
        let copy = self.make(node.inode, &target, found)?;
        if self.keep == Keep::Everything {
            attributes(node.inode, &copy, &self.map)
        } else {
            Ok(())
        }
    }
}

fn id(inode: &Inode) -> (u64, u64) {
    (inode.subvolume_id(), inode.number())
}

/// Gives `copy` the attributes of `original`.
fn attributes(original: &Inode, copy: &Inode, map: &OwnerMap) -> anyhow::Result<()> {
    let mut xattrs = original.xattrs().collect::<larder_filesystem::Result<Vec<_>>>()?;
    drop_inherited_acls(copy, |name| xattrs.iter().any(|xattr| xattr.name == name))?;
    for xattr in &mut xattrs {
        map.map_xattr(xattr.name.as_bytes(), &mut xattr.value);
        copy.set_xattr(&xattr.name, &xattr.value, XattrMode::Any)
            .with_context(|| format!("cannot set {}", xattr.name.display()))?;
    }
    let metadata = original.metadata();
    let is_symlink = original.file_type() == FileType::Symlink;
    copy.set_attributes(&SetAttributes {
        permissions: (!is_symlink).then_some(metadata.mode & 0o7777),
        uid: Some(map.users.inner(metadata.uid)),
        gid: Some(map.groups.inner(metadata.gid)),
        atime: Some(metadata.atime),
        mtime: Some(metadata.mtime),
        ..Default::default()
    })?;
    Ok(())
}
