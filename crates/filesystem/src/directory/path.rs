//! Paths: from a directory, across subvolumes and through symbolic links, to an inode.

use crate::directory::handle::Directory;
use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;

/// Symbolic links in one path, as many as the kernel follows.
const MAX_SYMLINKS: usize = 40;

/// The inode at the end of `path`: see [`Inode::resolve`].
pub(crate) fn resolve(from: &Inode, root: &Inode, path: &[u8], follow_last: bool) -> Result<Inode> {
    Walk { root, at: from.clone(), symlinks: 0 }.follow(path, follow_last)
}

struct Walk<'a> {
    root: &'a Inode,
    at: Inode,
    symlinks: usize,
}

impl Walk<'_> {
    fn follow(mut self, path: &[u8], follow_last: bool) -> Result<Inode> {
        // The rest of the walk, nearest last: one path for each symbolic link that is not yet at
        // its end.
        let mut rest = vec![path.to_vec()];
        while let Some(path) = rest.pop() {
            if path.first() == Some(&b'/') {
                self.at = self.root.clone();
            }
            let Some((name, behind)) = split(&path) else { continue };
            let next = self.step(name)?;
            let is_last = behind.is_empty() && rest.is_empty();
            if !behind.is_empty() {
                rest.push(behind.to_vec());
            }
            if next.file_type() == FileType::Symlink && (follow_last || !is_last) {
                self.symlinks += 1;
                if self.symlinks > MAX_SYMLINKS {
                    return Err(Error::TooManySymlinks);
                }
                rest.push(next.link_target()?);
            } else {
                self.at = next;
            }
        }
        Ok(self.at)
    }

    fn step(&self, name: &[u8]) -> Result<Inode> {
        match name {
            b"." => self.at.expect_directory().map(|()| self.at.clone()),
            b".." if self.at == *self.root => Ok(self.at.clone()),
            b".." => self.at.parent(),
            name => Directory::try_from(&self.at)?.lookup(name),
        }
    }
}

/// The first name of a path and the rest, without the slashes between: `.` if there are only
/// slashes, since a name with a slash after it must be a directory. `None` if there is no name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_slash = |&byte: &u8| byte == b'/';
    let path = &path[path.iter().position(|byte| !is_slash(byte))?..];
    let name_len = path.iter().position(is_slash).unwrap_or(path.len());
    let (name, behind) = path.split_at(name_len);
    match behind.iter().position(|byte| !is_slash(byte)) {
        Some(start) => Some((name, &behind[start..])),
        None if behind.is_empty() => Some((name, behind)),
        None => Some((name, b".")),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_slash_at_the_end_asks_for_a_directory() {
        assert_eq!(split(b"a//b/"), Some((&b"a"[..], &b"b/"[..])));
        assert_eq!(split(b"b/"), Some((&b"b"[..], &b"."[..])));
        assert_eq!(split(b"/b"), Some((&b"b"[..], &b""[..])));
        assert_eq!(split(b"//"), None);
        assert_eq!(split(b""), None);
    }
}
