//! Paths: from a directory, across subvolumes and through symbolic links, to an inode.

use crate::error::{Error, Result};
use crate::inode::{FileType, Inode};

/// Symbolic links on one path, as many as the kernel follows.
const MAX_SYMLINKS: usize = 40;

impl Inode {
    /// What `path` leads to from this directory, within the tree below `root`: that is where absolute
    /// paths start and beyond which `..` does not lead.
    ///
    /// A symbolic link at the end of the path is followed if `follow_last` says so, or if a slash
    /// stands behind it.
    pub fn resolve(&self, root: &Self, path: &[u8], follow_last: bool) -> Result<Self> {
        Walk { root, at: self.clone(), symlinks: 0 }.follow(path, follow_last)
    }
}

struct Walk<'a> {
    root: &'a Inode,
    at: Inode,
    symlinks: usize,
}

impl Walk<'_> {
    fn follow(mut self, path: &[u8], follow_last: bool) -> Result<Inode> {
        // What is still to be walked, the nearest last: one path for each symbolic link that is not
        // yet at its end.
        let mut rest = vec![path.to_vec()];
        while let Some(path) = rest.pop() {
            if path.first() == Some(&b'/') {
                self.at = self.root.clone();
            }
            let start = path.iter().take_while(|&&byte| byte == b'/').count();
            let path = &path[start..];
            if path.is_empty() {
                continue;
            }
            let len = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
            let (name, behind) = path.split_at(len);
            let next = self.step(name)?;
            let is_last = behind.is_empty() && rest.is_empty();
            if next.file_type() == FileType::Symlink && (follow_last || !is_last) {
                self.symlinks += 1;
                if self.symlinks > MAX_SYMLINKS {
                    return Err(Error::TooManySymlinks);
                }
                rest.push(relative(behind));
                rest.push(next.link_target()?);
                continue;
            }
            if !behind.is_empty() {
                next.expect_directory()?;
            }
            self.at = next;
            rest.push(relative(behind));
        }
        Ok(self.at)
    }

    fn step(&self, name: &[u8]) -> Result<Inode> {
        match name {
            b"." => self.at.expect_directory().map(|()| self.at.clone()),
            b".." if self.at == *self.root => Ok(self.at.clone()),
            b".." => self.at.parent(),
            name => self.at.lookup(name),
        }
    }
}

/// What stands behind a component: a path from there.
fn relative(behind: &[u8]) -> Vec<u8> {
    let slashes = behind.iter().take_while(|&&byte| byte == b'/').count();
    behind[slashes..].to_vec()
}
