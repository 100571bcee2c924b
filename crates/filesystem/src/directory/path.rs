//! Paths: from a directory, across subvolumes and through symbolic links, to an inode.

use std::ffi::OsStr;
use std::path::Path;

use larder_platform::OsStrExt;

use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;

/// Symbolic links in one path, as many as the kernel follows.
const MAX_SYMLINKS: usize = 40;

/// The inode at the end of `path`, walked from `from`, within the tree below `root`: absolute paths
/// start there, and `..` does not lead out of it.
///
/// A symbolic link at the end of the path is followed if `follow_last` says so, or if a slash
/// follows it.
pub(crate) fn resolve(
    from: &Inode,
    root: &Directory,
    path: &Path,
    follow_last: bool,
) -> Result<Inode> {
    let (mut at, mut symlinks) = (from.clone(), 0);
    // The rest of the walk, nearest last: one path for each symbolic link that is not yet at its
    // end.
    let mut rest = vec![path.as_os_str().to_owned()];
    while let Some(path) = rest.pop() {
        let path = path.as_bytes();
        if path.first() == Some(&b'/') {
            at = Inode::clone(root);
        }
        let Some((name, behind)) = split(path) else { continue };
        let directory = at.into_directory()?;
        let next = step(&directory, root, name)?;
        let is_last = behind.is_empty() && rest.is_empty();
        if !behind.is_empty() {
            rest.push(OsStr::from_bytes(behind).to_owned());
        }
        if next.file_type() == FileType::Symlink && (follow_last || !is_last) {
            symlinks += 1;
            if symlinks > MAX_SYMLINKS {
                return Err(Error::TooManySymlinks);
            }
            rest.push(next.link_target()?.into_os_string());
            at = directory.into_inode();
        } else {
            at = next;
        }
    }
    Ok(at)
}

fn step(at: &Directory, root: &Directory, name: &[u8]) -> Result<Inode> {
    match name {
        b"." => Ok(Inode::clone(at)),
        b".." if at == root => Ok(Inode::clone(at)),
        b".." => at.parent().map(Directory::into_inode),
        name => at.child_named(name),
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
