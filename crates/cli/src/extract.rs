//! Writing a tree of files from an image to the host.
//!
//! The image may be hostile, so nothing is ever written through a symbolic link: every directory is
//! opened relative to its parent's descriptor without following links, and files are created anew.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use larder::{FileType, Inode, Metadata, NewInode, Timestamp};
use larder_format::OwnerMap;
use rustix::fs::{
    AtFlags, CWD, FileType as NodeType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::interrupt;
use crate::progress::Progress;
use crate::source::new_inode;
use crate::tree::{Node, Visitor};

/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

const ALL_PERMISSIONS: u32 = 0o7777;

/// What a copy keeps besides content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Permissions, minus the umask.
    Permissions,
    /// Modes, owners, times, extended attributes and hard links.
    Everything,
}

impl Keep {
    /// The attributes for creating a copy of an inode with this `mode`. A copy that keeps everything
    /// has the permissions `at_first` until it is complete.
    pub fn new_inode(self, mode: u32, at_first: u32) -> NewInode {
        let file_type = mode & !ALL_PERMISSIONS;
        match self {
            Self::Everything => new_inode(file_type | at_first, 0),
            Self::Permissions => new_inode(file_type | plain_permissions(mode), umask()),
        }
    }
}

/// The permissions of an inode that mkdir(2) or open(2) makes of `mode`: a directory keeps its
/// sticky bit.
fn plain_permissions(mode: u32) -> u32 {
    let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
    mode & if is_directory { 0o1777 } else { 0o777 }
}

/// Writes the inodes of a walk.
pub struct Extract {
    /// The directory that contains the start of the copy.
    parent: OwnedFd,
    /// The name of the copy's start; `.` to copy into `parent` itself.
    name: OsString,
    keep: Keep,
    /// To the ids of this system.
    map: OwnerMap,
    /// The directories from the start of the copy to the position of the walk.
    open: Vec<OwnedFd>,
    buffer: Vec<u8>,
    written_bytes: u64,
    progress: Progress,
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const CREATE_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Extract {
    /// A copy named `name` in the directory `parent`.
    pub fn new(parent: &Path, name: OsString, keep: Keep, map: OwnerMap) -> anyhow::Result<Self> {
        // The user chose this path; links in it are the user's.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
        Ok(Self {
            parent,
            name,
            keep,
            map,
            open: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            written_bytes: 0,
            progress: Progress::of_bytes(),
        })
    }

    /// The directory of a node, and its name there.
    fn place<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a OsStr) {
        match (path.file_name(), self.open.last()) {
            (Some(name), Some(directory)) => (directory.as_fd(), name),
            _ => (self.parent.as_fd(), &self.name),
        }
    }

    fn file(&mut self, path: &Path, inode: &Inode) -> anyhow::Result<()> {
        let (directory, name) = self.place(path);
        make_way(directory, name)?;
        let created = rustix::fs::openat(directory, name, CREATE_FILE, Mode::from(0o600))?;
        let mut file = File::from(created);
        if let Err(error) = self.content(&mut file, inode) {
            let (directory, name) = self.place(path);
            remove(directory, name)?;
            return Err(error);
        }
        self.attributes(path, inode)
    }

    /// Copies the data of a file; holes stay holes.
    fn content(&mut self, out: &mut File, inode: &Inode) -> anyhow::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = inode.clone().into_file()?;
        for range in file.data_ranges()? {
            let mut offset = range.start;
            while offset < range.end {
                interrupt::check()?;
                let want = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
                let len = file.read_at(&mut self.buffer[..want], offset)?;
                if len == 0 {
                    bail!("the file ends at {offset}, before its size");
                }
                out.write_all_at(&self.buffer[..len], offset)?;
                offset += len as u64;
                self.written_bytes += len as u64;
                self.progress.set(self.written_bytes);
            }
        }
        out.set_len(file.len_bytes())?;
        out.flush()?;
        Ok(())
    }

    fn link(&self, path: &Path, met_as: &Path) -> anyhow::Result<()> {
        let mut directory =
            rustix::io::dup(self.open.first().map_or(self.parent.as_fd(), AsFd::as_fd))?;
        for component in met_as.parent().into_iter().flat_map(Path::components) {
            directory = rustix::fs::openat(
                &directory,
                component.as_os_str(),
                OPEN_DIRECTORY,
                Mode::empty(),
            )?;
        }
        let old = met_as.file_name().context("a hard link to nothing")?;
        let (parent, name) = self.place(path);
        remove(parent, name)?;
        rustix::fs::linkat(&directory, old, parent, name, AtFlags::empty())?;
        Ok(())
    }

    fn special(&self, path: &Path, inode: &Inode) -> anyhow::Result<()> {
        let (directory, name) = self.place(path);
        remove(directory, name)?;
        let metadata = inode.metadata();
        let mode = Mode::from(0o600);
        match metadata.file_type {
            FileType::Symlink => {
                rustix::fs::symlinkat(inode.link_target()?.as_os_str(), directory, name)?;
            }
            other => {
                let kind = match other {
                    FileType::BlockDevice => NodeType::BlockDevice,
                    FileType::CharDevice => NodeType::CharacterDevice,
                    FileType::Fifo => NodeType::Fifo,
                    _ => NodeType::Socket,
                };
                let (major, minor) = metadata.device;
                let device = rustix::fs::makedev(major, minor);
                rustix::fs::mknodat(directory, name, kind, mode, device)?;
            }
        }
        self.attributes(path, inode)
    }

    /// Sets the attributes of the copy, in an order in which none undoes another: a change of owner
    /// clears the set-user-ID bit and capabilities, and any change the times.
    fn attributes(&self, path: &Path, inode: &Inode) -> anyhow::Result<()> {
        let (directory, name) = self.place(path);
        let metadata = inode.metadata();
        let is_link = metadata.file_type == FileType::Symlink;
        if self.keep == Keep::Permissions {
            if !is_link {
                let mode = plain_permissions(metadata.mode) & !umask();
                rustix::fs::chmodat(directory, name, Mode::from(mode), AtFlags::empty())?;
            }
            return Ok(());
        }
        let uid = Uid::from_raw(self.map.users.inner(metadata.uid));
        let gid = Gid::from_raw(self.map.groups.inner(metadata.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(directory, name, Some(uid), Some(gid), flags) {
            // Only root can give files away. The copy belongs to its creator, as with cp -a.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
            other => other.context("cannot set the owner")?,
        }
        set_xattrs(directory, name, inode, &self.map)?;
        if !is_link {
            let mode = Mode::from(metadata.mode & 0o7777);
            rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
        }
        rustix::fs::utimensat(directory, name, &times(&metadata), flags)?;
        Ok(())
    }
}

impl Visitor for Extract {
    fn enter(&mut self, node: &Node<'_>) -> anyhow::Result<bool> {
        let (directory, name) = self.place(node.path);
        match rustix::fs::mkdirat(directory, name, Mode::from(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).context("cannot make the directory"),
        }
        let opened = rustix::fs::openat(directory, name, OPEN_DIRECTORY, Mode::empty())
            .context("cannot open the directory")?;
        self.open.push(opened);
        Ok(true)
    }

    fn visit(&mut self, node: &Node<'_>) -> anyhow::Result<()> {
        match (node.met_as, node.inode.file_type()) {
            (Some(met_as), _) if self.keep == Keep::Everything => self.link(node.path, met_as),
            (_, FileType::Regular) => self.file(node.path, node.inode),
            _ => self.special(node.path, node.inode),
        }
    }

    fn leave(&mut self, node: &Node<'_>) -> anyhow::Result<()> {
        self.open.pop();
        self.attributes(node.path, node.inode)
    }
}

/// Removes an inode in the way of a new file. A device or a pipe is more than a name: it stays, and
/// the copy fails.
fn make_way(directory: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()> {
    if let Ok(there) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        let kind = NodeType::from_raw_mode(there.st_mode);
        ensure!(
            matches!(kind, NodeType::RegularFile | NodeType::Symlink | NodeType::Directory),
            "a device, pipe or socket is in the way, and stays; to write to it: larder cat IMAGE:/PATH > IT"
        );
    }
    remove(directory, name)
}

/// Removes an inode in the way.
fn remove(directory: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error).context("cannot replace the existing file"),
    }
}

/// Sets extended attributes by a path through the directory's descriptor, since no call takes both.
fn set_xattrs(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    inode: &Inode,
    map: &OwnerMap,
) -> anyhow::Result<()> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    let path = OsStr::from_bytes(&path);
    for xattr in inode.xattrs() {
        let mut xattr = xattr?;
        map.map_xattr(xattr.name.as_bytes(), &mut xattr.value);
        let set = rustix::fs::lsetxattr(path, &xattr.name, &xattr.value, XattrFlags::empty());
        match set {
            Ok(()) => {}
            // Attributes that need root, or for which the destination has no room.
            Err(Errno::PERM | Errno::NOTSUP) => {
                eprintln!("WARNING: {}: cannot keep {}", name.display(), xattr.name.display());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot set {}", xattr.name.display()));
            }
        }
    }
    Ok(())
}

fn times(metadata: &Metadata) -> Timestamps {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(metadata.atime), last_modification: time(metadata.mtime) }
}

/// The umask. Reading it means setting it: no other way works everywhere.
pub fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
