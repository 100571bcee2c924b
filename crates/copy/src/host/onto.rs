//! Copies onto the file systems of this machine.
//!
//! The original may be hostile, and so may users of the destination. So nothing is ever written
//! through a symbolic link: every directory is opened relative to its parent's descriptor without
//! following links, and a file is created anew, or overwritten if it is one and no link. Attributes
//! all go to one inode, through a descriptor, and to none of another kind than the one that was
//! made. Otherwise a user who may rename there puts another file in its place, and that file gets
//! the owner and permissions of the copy.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use larder_filesystem::{FileType, NewInode, Timestamp};
use larder_platform::HostTree;
use rustix::fs::{
    AtFlags, CWD, FileType as NodeType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW,
    Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::destination::{ACCESS_ACL, Attributes, DEFAULT_ACL, Destination, NotKept};
use crate::keep::Keep;

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const CREATE_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Names an inode of any kind without opening it.
const PIN: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The permissions that a directory needs while it is filled.
const FILLED: u32 = 0o700;
const SET_IDS: u32 = 0o6000;
/// The most directories that are open: a tree may be deeper than that.
const MOST_OPEN: usize = 100;

/// A directory of this machine as a destination: paths start there.
#[derive(Debug)]
pub struct OntoHost {
    base: Directory,
    /// The path of the base.
    path: PathBuf,
    /// The tree below the base, for files that are overwritten.
    tree: HostTree,
    /// The directories from the base to the one that was used last.
    open: Vec<(PathBuf, Directory)>,
    /// The file that was made last.
    file: Option<(PathBuf, File)>,
    /// It was there before.
    is_overwritten: bool,
    /// The link, device, pipe or socket that was made last.
    node: Option<(PathBuf, NodeType)>,
}

/// An open directory.
#[derive(Debug)]
struct Directory {
    descriptor: OwnedFd,
    /// Whether it gives its entries an ACL.
    passes_acl_on: bool,
    /// Permissions that it gets once it is filled.
    last: Option<Mode>,
}

impl Directory {
    fn of(descriptor: OwnedFd) -> Self {
        let mut nothing: [u8; 0] = [];
        let passes_acl_on = rustix::fs::fgetxattr(&descriptor, DEFAULT_ACL, &mut nothing).is_ok();
        Self { descriptor, passes_acl_on, last: None }
    }

    fn open(above: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<Self> {
        let open = rustix::fs::openat(above, name, OPEN_DIRECTORY, Mode::empty());
        open.map(Self::of).context("cannot open the directory")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(mode) = self.last {
            // Its maker owns it.
            let _ = rustix::fs::fchmod(&self.descriptor, mode);
        }
    }
}

impl OntoHost {
    /// Copies below `directory`.
    pub fn below(directory: &Path) -> anyhow::Result<Self> {
        // The user chose this path; links in it are the user's.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
        let tree = HostTree::of(base.try_clone()?);
        let (path, base) = (directory.to_owned(), Directory::of(base));
        let (file, node, is_overwritten) = Default::default();
        Ok(Self { base, path, tree, open: Vec::new(), file, is_overwritten, node })
    }

    /// The directory that contains `path`, and the name there: `.` for the base itself.
    fn place<'p>(&mut self, path: &'p Path) -> anyhow::Result<(&Directory, &'p OsStr)> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.directory(parent)?, name)),
            _ => Ok((&self.base, OsStr::new("."))),
        }
    }

    fn directory(&mut self, path: &Path) -> anyhow::Result<&Directory> {
        while self.open.pop_if(|(open, _)| !path.starts_with(open)).is_some() {}
        let known = self.open.last().map_or(Path::new(""), |(open, _)| open).to_owned();
        let mut below = known.clone();
        for name in path.strip_prefix(&known)? {
            below.push(name);
            let above = self.innermost().descriptor.as_fd();
            let opened = Directory::open(above, name)?;
            self.enter(below.clone(), opened);
        }
        Ok(self.innermost())
    }

    /// Adds the directory at `path`, which lies in the innermost one.
    fn enter(&mut self, path: PathBuf, directory: Directory) {
        self.open.push((path, directory));
        if self.open.len() > MOST_OPEN
            && let Some(spare) = self.open.iter().position(|(_, it)| it.last.is_none())
        {
            self.open.remove(spare);
        }
    }

    fn innermost(&self) -> &Directory {
        self.open.last().map_or(&self.base, |(_, directory)| directory)
    }

    /// Makes an inode by `make`. If there is one in the way, `make_way` removes it.
    fn replace<T>(
        &mut self,
        path: &Path,
        make_way: impl FnOnce(BorrowedFd<'_>, &OsStr) -> anyhow::Result<()>,
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
    ) -> anyhow::Result<T> {
        self.file = None;
        let (directory, name) = self.place(path)?;
        let directory = directory.descriptor.as_fd();
        match make(directory, name) {
            Err(Errno::EXIST) => {
                make_way(directory, name)?;
                Ok(make(directory, name)?)
            }
            made => Ok(made?),
        }
    }

    fn made(&self, path: &Path) -> anyhow::Result<&File> {
        let made = self.file.as_ref().filter(|(made, _)| made == path);
        made.map(|(_, file)| file).context("no file was made")
    }
}

impl Destination for OntoHost {
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.file = None;
        let (above, name) = self.place(path)?;
        let mode = Mode::from_raw_mode(new.mode | FILLED);
        let last = match rustix::fs::mkdirat(&above.descriptor, name, mode) {
            Ok(()) => Some(new.mode).filter(|mode| mode & FILLED != FILLED),
            Err(Errno::EXIST) => None,
            Err(error) => return Err(error).context("cannot make the directory"),
        };
        if path.file_name().is_some() {
            let mut made = Directory::open(above.descriptor.as_fd(), name)?;
            made.last = last.map(|mode| Mode::from_raw_mode(mode & !new.umask));
            self.enter(path.to_owned(), made);
        }
        Ok(())
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        self.directory(path).is_ok()
    }

    fn shown(&self, path: &Path) -> PathBuf {
        if self.path == Path::new(".") { path.to_owned() } else { self.path.join(path) }
    }

    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool> {
        self.file = None;
        let opened = open_to_overwrite(&mut self.tree, path, keep)?;
        self.is_overwritten = opened.is_some();
        self.file = opened.map(|file| (path.to_owned(), file));
        Ok(self.is_overwritten)
    }

    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.is_overwritten = false;
        let mode = Mode::from_raw_mode(new.mode);
        let create = |directory: BorrowedFd<'_>, name: &OsStr| {
            rustix::fs::openat(directory, name, CREATE_FILE, mode)
        };
        let file = self.replace(path, make_way_for_data, create)?;
        self.file = Some((path.to_owned(), file.into()));
        Ok(())
    }

    fn write(&mut self, path: &Path, data: &[u8], offset: u64) -> anyhow::Result<()> {
        Ok(self.made(path)?.write_all_at(data, offset)?)
    }

    fn set_len(&mut self, path: &Path, len_bytes: u64) -> anyhow::Result<()> {
        Ok(self.made(path)?.set_len(len_bytes)?)
    }

    fn discard(&mut self, path: &Path) -> anyhow::Result<()> {
        self.file = None;
        if self.is_overwritten {
            return Ok(());
        }
        let (directory, name) = self.place(path)?;
        remove(directory.descriptor.as_fd(), name)
    }

    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        let kind = match FileType::from_mode(new.mode) {
            Some(FileType::BlockDevice) => NodeType::BlockDevice,
            Some(FileType::CharDevice) => NodeType::CharacterDevice,
            Some(FileType::Fifo) => NodeType::Fifo,
            _ => NodeType::Socket,
        };
        let (mode, (major, minor)) = (Mode::from_raw_mode(new.mode), new.device);
        let device = rustix::fs::makedev(major, minor);
        self.node = Some((path.to_owned(), kind));
        self.replace(path, remove, |above, name| {
            rustix::fs::mknodat(above, name, kind, mode, device)
        })
    }

    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()> {
        self.node = Some((path.to_owned(), NodeType::Symlink));
        self.replace(path, remove, |above, name| rustix::fs::symlinkat(target, above, name))
    }

    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()> {
        let mut above = rustix::io::fcntl_dupfd_cloexec(&self.base.descriptor, 0)?;
        for name in original.parent().into_iter().flatten() {
            above = rustix::fs::openat(&above, name, OPEN_DIRECTORY, Mode::empty())?;
        }
        let old = original.file_name().context("a hard link to nothing")?;
        self.replace(path, remove, |directory, name| {
            rustix::fs::linkat(&above, old, directory, name, AtFlags::empty())
        })
    }

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept> {
        let file = self.file.take().filter(|(made, _)| made == path).map(|(_, file)| file);
        let had_acl = file.is_some() && self.is_overwritten;
        let node = self.node.take().filter(|(made, _)| made == path);
        let kind = node.map_or(NodeType::Directory, |(_, kind)| kind);
        let (above, name) = self.place(path)?;
        let drops_acls = above.passes_acl_on || had_acl;
        let inode = match file {
            Some(file) => file.into(),
            None => {
                let pinned = rustix::fs::openat(&above.descriptor, name, PIN, Mode::empty())?;
                let status = rustix::fs::fstat(&pinned)?;
                let is_it = kind == NodeType::from_raw_mode(status.st_mode);
                let is_alone = kind == NodeType::Directory || status.st_nlink == 1;
                ensure!(is_it && is_alone, "another inode took its place meanwhile");
                pinned
            }
        };
        give(inode.as_fd(), attributes, drops_acls)
    }
}

/// Gives the inode that is open, or pinned, its attributes, in an order in which none undoes
/// another: a change of owner clears the set-user-ID bit and capabilities, and any change the times.
/// If it `drops_acls`, the inode keeps none of those that it has.
///
/// # Errors
/// Those of setting them.
pub fn give(
    inode: BorrowedFd<'_>,
    attributes: Attributes,
    drops_acls: bool,
) -> anyhow::Result<NotKept> {
    let Attributes { mut permissions, uid, gid, atime, mtime, xattrs } = attributes;
    // A path of this inode alone, for calls that take no descriptor of one that is pinned.
    let shown = format!("/proc/self/fd/{}", inode.as_raw_fd());
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match rustix::fs::chownat(inode, "", uid, gid, AtFlags::EMPTY_PATH) {
            // Only root can give files away. The copy belongs to its creator, as with cp -a.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {
                let _ = rustix::fs::chownat(inode, "", None, gid, AtFlags::EMPTY_PATH);
                permissions = permissions.map(|permissions| permissions & !SET_IDS);
            }
            other => other.context("cannot set the owner")?,
        }
    }
    if drops_acls && permissions.is_some() && xattrs.is_some() {
        for acl in [ACCESS_ACL, DEFAULT_ACL] {
            match rustix::fs::removexattr(&*shown, acl) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(error) => return Err(error).context("cannot remove an inherited ACL"),
            }
        }
    }
    let mut not_kept = NotKept::new();
    for (name, value) in xattrs.iter().flatten() {
        match rustix::fs::setxattr(&*shown, name, value, XattrFlags::empty()) {
            Ok(()) => {}
            // Elsewhere, properties of btrfs mean nothing.
            Err(Errno::NOTSUP) if name.as_encoded_bytes().starts_with(b"btrfs.") => {}
            // Attributes that need root, or for which the destination has no room.
            Err(Errno::PERM | Errno::NOTSUP) => not_kept.push(name.clone()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot set {}", name.display()));
            }
        }
    }
    if let Some(permissions) = permissions {
        rustix::fs::chmod(&*shown, Mode::from_raw_mode(permissions))?;
    }
    if atime.is_some() || mtime.is_some() {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        rustix::fs::utimensat(inode, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(not_kept)
}

/// Opens the file at `path` that a copy overwrites, if there is one, and empties it.
///
/// # Errors
/// Those of opening it.
pub fn open_to_overwrite(
    tree: &mut HostTree,
    path: &Path,
    keep: Keep,
) -> anyhow::Result<Option<File>> {
    let is_overwritten = |status: &Stat| {
        NodeType::from_raw_mode(status.st_mode) == NodeType::RegularFile
            && keep.overwrites(u32::try_from(status.st_nlink).unwrap_or(u32::MAX))
    };
    match tree.status(path) {
        Ok(status) if is_overwritten(&status) => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => return Ok(None),
    }
    let (file, status) = tree.file_for_writing(path)?;
    if !is_overwritten(&status) {
        return Ok(None);
    }
    file.set_len(0)?;
    Ok(Some(file))
}

/// Removes an inode in the way of a new file. A device or a pipe is more than a name: it stays, and
/// the copy fails.
fn make_way_for_data(directory: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()> {
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

/// The time, or now.
fn timespec(time: Option<Timestamp>) -> Timespec {
    time.map_or(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }, |time| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn attributes_do_not_go_through_a_link_that_takes_the_place_of_a_copy() {
        let folder = std::env::temp_dir().join(format!("larder-onto-{}", std::process::id()));
        let (victim, copies) = (folder.join("victim"), folder.join("copies"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(&victim, "").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(&copies).unwrap();
        let mut onto = OntoHost::below(&copies).unwrap();
        let new = |mode| NewInode { mode, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        let permissions = || Attributes { permissions: Some(0o777), ..Attributes::default() };
        let (pipe, directory) = (Path::new("pipe"), Path::new("directory"));
        onto.make_node(pipe, &new(0o010_600)).unwrap();
        onto.make_directory(directory, &new(0o700)).unwrap();
        fs::remove_file(copies.join(pipe)).unwrap();
        fs::remove_dir(copies.join(directory)).unwrap();
        for path in [pipe, directory] {
            symlink(&victim, copies.join(path)).unwrap();
            onto.finish(path, permissions()).unwrap_err();
        }
        // Neither to another file that is renamed, or that has other names.
        for other in ["moved", "victim"] {
            let other = folder.join(other);
            fs::write(&other, "").unwrap();
            fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
            onto.make_node(pipe, &new(0o010_600)).unwrap();
            fs::remove_file(copies.join(pipe)).unwrap();
            fs::hard_link(&other, copies.join(pipe)).unwrap();
            if other != victim {
                fs::remove_file(&other).unwrap();
            }
            onto.finish(pipe, permissions()).unwrap_err();
            assert_eq!(
                fs::metadata(copies.join(pipe)).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
    }
}
