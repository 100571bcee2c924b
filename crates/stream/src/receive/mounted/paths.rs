//! Descriptors of files below the root of a subvolume.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};

/// How to walk paths: down, within one mount, and through no link. Another subvolume can be entered
/// on the way.
pub(super) const DOWN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The files of the subvolume that has one root. The last directory and the last file are kept open: the next
/// command most often concerns them again.
#[derive(Debug)]
pub(super) struct Paths {
    root: Arc<OwnedFd>,
    /// The device number of the subvolume.
    device: u64,
    directory: Option<(Vec<u8>, Arc<OwnedFd>)>,
    file: Option<(Vec<u8>, Arc<File>)>,
}

impl Paths {
    pub(super) fn new(root: OwnedFd) -> io::Result<Self> {
        let device = fstat(&root)?.st_dev;
        Ok(Self { root: Arc::new(root), device, directory: None, file: None })
    }

    /// The root.
    pub(super) fn root(&self) -> Arc<OwnedFd> {
        self.root.clone()
    }

    /// The root, with nothing else open.
    pub(super) fn into_root(self) -> Arc<OwnedFd> {
        self.root
    }

    /// The directory of `path`, and the name in it. The root has none.
    pub(super) fn parent_and_name<'p>(
        &mut self,
        path: &'p [u8],
    ) -> io::Result<(Arc<OwnedFd>, &'p [u8])> {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Ok((self.directory(&path[..slash])?, &path[slash + 1..])),
            None if path.is_empty() => Err(io::ErrorKind::InvalidInput.into()),
            None => Ok((self.root.clone(), path)),
        }
    }

    fn directory(&mut self, path: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if let Some((known, directory)) = &self.directory
            && known == path
        {
            return Ok(directory.clone());
        }
        let directory = Arc::new(self.open(path, OFlags::PATH | OFlags::DIRECTORY)?);
        self.directory = Some((path.to_vec(), directory.clone()));
        Ok(directory)
    }

    /// The inode of any type at `path`, for its attributes.
    pub(super) fn node(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH)
    }

    /// The regular file at `path`, open for reading and writing.
    pub(super) fn file(&mut self, path: &[u8]) -> io::Result<Arc<File>> {
        if let Some((known, file)) = &self.file
            && known == path
        {
            return Ok(file.clone());
        }
        let file = self.regular(path, OFlags::RDWR)?;
        Ok(self.note_file(path, file))
    }

    /// The regular file at `path`, open for reading.
    pub(super) fn source(&mut self, path: &[u8]) -> io::Result<File> {
        self.regular(path, OFlags::RDONLY)
    }

    /// Notes a file that was just opened or made.
    pub(super) fn note_file(&mut self, path: &[u8], file: File) -> Arc<File> {
        let file = Arc::new(file);
        self.file = Some((path.to_vec(), file.clone()));
        file
    }

    /// Closes the files that are kept by path: names are about to change.
    pub(super) fn forget(&mut self) {
        (self.directory, self.file) = (None, None);
    }

    /// Refuses pipes and devices: opening one could wait forever, or have side effects.
    fn regular(&self, path: &[u8], flags: OFlags) -> io::Result<File> {
        let node = self.open(path, OFlags::PATH)?;
        if !File::from(node).metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        self.open(path, flags | OFlags::NONBLOCK).map(File::from)
    }

    /// With `O_PATH` a symbolic link at the end is opened itself, otherwise refused.
    fn open(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = openat2(&self.root, path, flags, Mode::empty(), DOWN)?;
        // Each subvolume has a device number of its own.
        if fstat(&node)?.st_dev != self.device {
            return Err(io::Error::from(rustix::io::Errno::XDEV));
        }
        Ok(node)
    }
}

/// A path to an open descriptor, for calls that take no descriptor.
pub(super) fn link_of(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}
