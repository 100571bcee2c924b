//! A tree of files of this system that other users may change meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;

/// The most directories that are open: a tree may be deeper than that.
const MOST_OPEN: usize = 64;
/// Opening waits for no other program, and makes no terminal that of this process.
const AT_ONCE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A tree of files of this system, by descriptors. Paths start at its top; the empty one is the top
/// itself.
///
/// # Invariants
/// - The user chose the path of the top, and symbolic links in it are the user's. Below the top no
///   link is followed: each directory is opened relative to the descriptor of the one above.
/// - A path in it has names alone: one with `/` at its start or with `..` is refused.
/// - Kind and attributes are those of the inode that is open, not of one that was there before.
/// - Opening waits for nothing, also if a pipe takes the place of a file.
#[derive(Debug)]
pub struct HostTree {
    top: OwnedFd,
    /// Directories on the way to the one that was used last.
    open: Vec<(PathBuf, OwnedFd)>,
}

/// An inode of a [`HostTree`] that is neither a file nor a directory. It is not open: that could
/// have effects of its own.
#[derive(Debug)]
pub struct Pinned(OwnedFd);

impl HostTree {
    /// The tree below `directory`.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn below(directory: &Path) -> io::Result<Self> {
        Ok(Self::of(open_quietly(CWD, directory, OFlags::DIRECTORY)?))
    }

    /// The tree below the open directory `top`.
    pub fn of(top: OwnedFd) -> Self {
        Self { top, open: Vec::new() }
    }

    /// The tree below the directory that contains `path`, and the path in it: a name, or nothing if
    /// `path` ends with a slash, `.` or `..`, and so names a directory.
    ///
    /// # Errors
    /// Those of opening the directory.
    pub fn containing(path: &Path) -> io::Result<(Self, PathBuf)> {
        let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
        match path.file_name().filter(|_| !matches!(last, Some(b"" | b"." | b".."))) {
            None => Ok((Self::below(path)?, PathBuf::new())),
            Some(name) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                Ok((Self::below(parent.unwrap_or(Path::new(".")))?, name.into()))
            }
        }
    }

    /// The open directory at `path`.
    ///
    /// # Errors
    /// Those of opening it; `ENOTDIR` if a symbolic link is in its place.
    pub fn directory(&mut self, path: &Path) -> io::Result<BorrowedFd<'_>> {
        while self.open.pop_if(|(open, _)| !path.starts_with(open)).is_some() {}
        let mut at = self.open.last().map_or(Path::new(""), |(open, _)| open).to_owned();
        for name in path.strip_prefix(&at).unwrap_or(path) {
            if !is_name(name) {
                return Err(Errno::INVAL.into());
            }
            let opened =
                open_quietly(self.innermost(), name, OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
            at.push(name);
            self.open.push((at.clone(), opened));
            if self.open.len() > MOST_OPEN {
                self.open.remove(0);
            }
        }
        Ok(self.innermost())
    }

    fn innermost(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(&self.top, |(_, directory)| directory).as_fd()
    }

    /// The directory that contains `path`, and the name there: `.` for the top.
    fn place<'p>(&mut self, path: &'p Path) -> io::Result<(BorrowedFd<'_>, &'p OsStr)> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.directory(parent)?, name)),
            _ if path.as_os_str().is_empty() => Ok((self.top.as_fd(), OsStr::new("."))),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// The attributes of the inode at `path`.
    ///
    /// # Errors
    /// Those of looking at it.
    pub fn status(&mut self, path: &Path) -> io::Result<Stat> {
        let (directory, name) = self.place(path)?;
        Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in the directory at `path`.
    ///
    /// # Errors
    /// Those of opening and reading it.
    pub fn names(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.directory(path)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    /// Those of opening it; it is no regular file any more.
    pub fn file(&mut self, path: &Path) -> io::Result<(File, Stat)> {
        let (directory, name) = self.place(path)?;
        is_file(open_quietly(directory, name, AT_ONCE))
    }

    /// Opens the file at `path` for writing, and changes nothing of it.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn file_for_writing(&mut self, path: &Path) -> io::Result<(File, Stat)> {
        let (directory, name) = self.place(path)?;
        let flags = AT_ONCE | OFlags::WRONLY | OFlags::CLOEXEC;
        is_file(openat(directory, name, flags, Mode::empty()))
    }

    /// An inode that is neither a file nor a directory, and its attributes.
    ///
    /// # Errors
    /// Those of looking at it.
    pub fn pinned(&mut self, path: &Path) -> io::Result<(Pinned, Stat)> {
        let (directory, name) = self.place(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let pinned = openat(directory, name, flags, Mode::empty())?;
        let status = fstat(&pinned)?;
        Ok((Pinned(pinned), status))
    }
}

impl Pinned {
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It is none.
    pub fn link_target(&self) -> io::Result<OsString> {
        Ok(OsString::from_vec(readlinkat(&self.0, "", Vec::new())?.into_bytes()))
    }

    /// A path of exactly this inode as long as it is pinned, for calls that take no descriptor of
    /// such an inode. It needs `/proc`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Whether a part of a path is a name in a directory.
pub fn is_name(part: &OsStr) -> bool {
    let bytes = part.as_bytes();
    !bytes.is_empty() && !matches!(bytes, b"." | b"..") && !bytes.contains(&b'/')
}

/// Opens for reading, and keeps the time of last access if that is allowed.
///
/// # Errors
/// Those of openat(2).
pub fn open_quietly(
    directory: impl AsFd,
    name: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    match openat(&directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(&directory, name, flags, Mode::empty()),
        result => result,
    }
}

/// What was opened, if it is a file.
fn is_file(opened: Result<OwnedFd, Errno>) -> io::Result<(File, Stat)> {
    let changed = || io::Error::other("another kind of inode took its place meanwhile");
    let opened = match opened {
        // A symbolic link, or a pipe or a socket that no other program has open.
        Err(Errno::LOOP | Errno::NXIO) => return Err(changed()),
        opened => opened?,
    };
    let status = fstat(&opened)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(changed());
    }
    Ok((opened.into(), status))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("larder-host-tree-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("secret")).unwrap();
        fs::write(folder.join("secret/f"), "secret").unwrap();
        fs::create_dir_all(folder.join("tree/d")).unwrap();
        fs::write(folder.join("tree/d/f"), "own").unwrap();
        folder
    }

    #[test]
    fn links_that_take_the_place_of_something_are_not_followed() {
        let folder = folder("links");
        let mut tree = HostTree::below(&folder.join("tree")).unwrap();
        let (file, deep) = (Path::new("d/f"), Path::new("d"));
        assert_eq!(io::read_to_string(tree.file(file).unwrap().0).unwrap(), "own");
        // A file, then its directory.
        fs::remove_file(folder.join("tree/d/f")).unwrap();
        symlink(folder.join("secret/f"), folder.join("tree/d/f")).unwrap();
        assert!(tree.file(file).is_err() && tree.file_for_writing(file).is_err());
        let (link, _) = tree.pinned(file).unwrap();
        assert_eq!(link.link_target().unwrap(), folder.join("secret/f"));
        fs::remove_dir_all(folder.join("tree/d")).unwrap();
        symlink(folder.join("secret"), folder.join("tree/d")).unwrap();
        let mut tree = HostTree::below(&folder.join("tree")).unwrap();
        assert!(tree.file(file).is_err() && tree.directory(deep).is_err());
        assert!(tree.status(file).is_err() && tree.names(deep).is_err());
        // What the user names may be a link.
        assert!(HostTree::below(&folder.join("tree/d")).unwrap().file(Path::new("f")).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_path_leads_out_of_a_tree() {
        let folder = folder("paths");
        let mut tree = HostTree::below(&folder.join("tree")).unwrap();
        let secret = folder.join("secret");
        for path in [Path::new("../secret"), Path::new("d/../../secret"), &secret] {
            assert!(tree.directory(path).is_err() && tree.names(path).is_err());
            assert!(tree.file(&path.join("f")).is_err() && tree.status(&path.join("f")).is_err());
        }
        for path in ["..", "d/..", "/"] {
            assert!(tree.status(Path::new(path)).is_err() && tree.file(Path::new(path)).is_err());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_tree_is_deeper_than_directories_can_be_open() {
        let folder = std::env::temp_dir().join(format!("larder-deep-{}", std::process::id()));
        let deep: PathBuf = (0..3 * MOST_OPEN).map(|_| "d").collect();
        fs::create_dir_all(folder.join(&deep)).unwrap();
        fs::write(folder.join(&deep).join("f"), "deep").unwrap();
        let mut tree = HostTree::below(&folder).unwrap();
        for path in deep.ancestors() {
            let names = tree.names(path).unwrap();
            assert_eq!(names, [if path == deep { "f" } else { "d" }]);
        }
        assert!(tree.file(&deep.join("f")).is_ok() && tree.open.len() <= MOST_OPEN);
        fs::remove_dir_all(folder).unwrap();
    }
}
