//! Copies onto the file systems of this machine.
//!
//! The original may be hostile, and so may users of the destination. So nothing is ever written
//! through a symbolic link: every directory is opened relative to its parent's descriptor without
//! following links, and a file is created anew, or overwritten if it is one and no link. Otherwise a
//! user who may rename there puts another inode in the place of a copy, and that inode gets the
//! owner and permissions of the copy.
//!
//! # Invariants
//! - A path has names alone: one with `/` at its start or with `..` leads nowhere.
//! - A name is looked up once, right after the copy was made or found. From then on the copy is its
//!   descriptor; a directory that is closed meanwhile is its device and inode number.
//! - What was made right before is of the kind that was asked for, and has no permission that was
//!   not. A file or node has no other name, and a directory no content.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder_filesystem::{FileType, NewInode, Timestamp};
use larder_platform::{HostTree, is_name};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType as NodeType, Gid, Mode, OFlags, Stat, Timespec, Timestamps,
    UTIME_NOW, Uid, XattrFlags,
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
const DIRECTORY: u32 = 0o040_000;
/// Reading, writing, searching.
const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
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
    node: Option<(PathBuf, OwnedFd)>,
    /// All directories that were made or found, except the base, until they are finished.
    directories: HashMap<PathBuf, Identity>,
}

/// The device and the number of an inode.
type Identity = (u64, u64);

const CHANGED: &str = "another inode took its place meanwhile";

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

/// Whether a directory has no content.
fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
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
        let (file, node, is_overwritten, directories) = Default::default();
        Ok(Self { base, path, tree, open: Vec::new(), file, is_overwritten, node, directories })
    }

    /// The directory that contains `path`, and the name there: `.` for the base itself.
    fn place<'p>(&mut self, path: &'p Path) -> anyhow::Result<(&Directory, &'p OsStr)> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.directory(parent)?, name)),
            _ if path.as_os_str().is_empty() => Ok((&self.base, OsStr::new("."))),
            _ => bail!("the path leads out of the destination"),
        }
    }

    /// Makes the directories on the way to `path` that are missing, for this user only.
    ///
    /// # Errors
    /// Those of making them; something else is in the way.
    pub fn make_way_to(&mut self, path: &Path) -> anyhow::Result<()> {
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for directory in above.into_iter().rev().filter(|it| it.file_name().is_some()) {
            if !self.is_directory(directory) {
                self.make_directory(directory, &Keep::Everything.new_inode(DIRECTORY, 0o700))?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path) -> anyhow::Result<&Directory> {
        while self.open.pop_if(|(open, _)| !path.starts_with(open)).is_some() {}
        let known = self.open.last().map_or(Path::new(""), |(open, _)| open).to_owned();
        let mut below = known.clone();
        for name in path.strip_prefix(&known)? {
            ensure!(is_name(name), "the path leads out of the destination");
            below.push(name);
            let above = self.innermost().descriptor.as_fd();
            let opened = Directory::open(above, name)?;
            self.enter(below.clone(), opened)?;
        }
        Ok(self.innermost())
    }

    /// Adds the directory at `path`, which lies in the innermost one.
    ///
    /// # Errors
    /// It is not the one that was there before.
    fn enter(&mut self, path: PathBuf, directory: Directory) -> anyhow::Result<()> {
        let found = identity(&rustix::fs::fstat(&directory.descriptor)?);
        match self.directories.get(&path) {
            Some(known) => ensure!(*known == found, CHANGED),
            None => drop(self.directories.insert(path.clone(), found)),
        }
        self.open.push((path, directory));
        if self.open.len() > MOST_OPEN
            && let Some(spare) = self.open.iter().position(|(_, it)| it.last.is_none())
        {
            self.open.remove(spare);
        }
        Ok(())
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

    /// Holds the node of this kind that was made at `path`.
    fn hold(&mut self, path: &Path, kind: NodeType) -> anyhow::Result<()> {
        let (above, name) = self.place(path)?;
        let pinned = rustix::fs::openat(&above.descriptor, name, PIN, Mode::empty())?;
        let status = rustix::fs::fstat(&pinned)?;
        let is_it = kind == NodeType::from_raw_mode(status.st_mode) && status.st_nlink == 1;
        ensure!(is_it, CHANGED);
        self.node = Some((path.to_owned(), pinned));
        Ok(())
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
        let is_new = match rustix::fs::mkdirat(&above.descriptor, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error).context("cannot make the directory"),
        };
        if path.file_name().is_none() {
            return Ok(());
        }
        let mut opened = Directory::open(above.descriptor.as_fd(), name)?;
        if is_new {
            let status = rustix::fs::fstat(&opened.descriptor)?;
            let has_others = Mode::from_raw_mode(status.st_mode) & PERMISSIONS & !mode;
            ensure!(has_others.is_empty() && is_empty(&opened.descriptor)?, CHANGED);
            if new.mode & FILLED != FILLED {
                opened.last = Some(Mode::from_raw_mode(new.mode & !new.umask));
            }
            self.directories.remove(path);
        }
        self.enter(path.to_owned(), opened)
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
        self.replace(path, remove, |above, name| {
            rustix::fs::mknodat(above, name, kind, mode, device)
        })?;
        self.hold(path, kind)
    }

    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()> {
        self.replace(path, remove, |above, name| rustix::fs::symlinkat(target, above, name))?;
        self.hold(path, NodeType::Symlink)
    }

    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()> {
        let mut above = rustix::io::fcntl_dupfd_cloexec(&self.base.descriptor, 0)?;
        for name in original.parent().into_iter().flatten() {
            ensure!(is_name(name), "the path leads out of the destination");
            above = rustix::fs::openat(&above, name, OPEN_DIRECTORY, Mode::empty())?;
        }
        let old = original.file_name().context("a hard link to nothing")?;
        self.replace(path, remove, |directory, name| {
            rustix::fs::linkat(&above, old, directory, name, AtFlags::empty())
        })
    }

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept> {
        let file = self.file.take().filter(|(made, _)| made == path);
        let had_acl = file.is_some() && self.is_overwritten;
        let node = self.node.take().filter(|(made, _)| made == path);
        let made = file.map(|(_, file)| file.into()).or(node.map(|(_, node)| node));
        let known = self.directories.remove(path);
        let (above, name) = self.place(path)?;
        let drops_acls = above.passes_acl_on || had_acl;
        let inode = match made {
            Some(made) => made,
            None => {
                let found = rustix::fs::openat(&above.descriptor, name, PIN, Mode::empty())?;
                let is_base = path.file_name().is_none();
                let is_it = known == Some(identity(&rustix::fs::fstat(&found)?));
                ensure!(is_base || is_it, CHANGED);
                found
            }
        };
        give(inode.as_fd(), attributes, drops_acls)
    }
}

fn identity(status: &Stat) -> Identity {
    (status.st_dev, status.st_ino)
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
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use rustix::fs::mknodat;

    use super::*;

    /// A pipe, a symbolic link and a directory are made; then inodes of all kinds take their places.
    #[test]
    fn attributes_go_to_no_inode_that_takes_the_place_of_a_copy() {
        let folder = std::env::temp_dir().join(format!("larder-onto-{}", std::process::id()));
        let copies = folder.join("copies");
        fs::create_dir_all(&copies).unwrap();
        let new = |mode| NewInode { mode, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        let put = |kind: &str, path: &Path| match kind {
            "file" => fs::write(path, "").unwrap(),
            "directory" => fs::create_dir(path).unwrap(),
            "link" => symlink("nowhere", path).unwrap(),
            "link to a file" => symlink(folder.join("victim"), path).unwrap(),
            "further name" => fs::hard_link(folder.join("victim"), path).unwrap(),
            _ => mknodat(CWD, path, NodeType::Fifo, Mode::empty(), 0).unwrap(),
        };
        let of = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.permissions().mode(), found.mtime())
        };
        for made in ["pipe", "link", "directory"] {
            for other in ["file", "directory", "link", "pipe", "link to a file", "further name"] {
                let mut onto = OntoHost::below(&copies).unwrap();
                let (name, victim) = (Path::new("name"), folder.join("victim"));
                fs::write(&victim, "").unwrap();
                match made {
                    "pipe" => onto.make_node(name, &new(0o010_600)).unwrap(),
                    "link" => onto.make_symlink(name, OsStr::new("nowhere")).unwrap(),
                    _ => onto.make_directory(name, &new(0o700)).unwrap(),
                }
                fs::rename(copies.join(name), folder.join("original")).unwrap();
                put(other, &copies.join(name));
                let before = (of(&copies.join(name)), of(&victim));
                let attributes = Attributes {
                    permissions: (made != "link").then_some(0o777),
                    mtime: Some(Timestamp { seconds: 1, nanoseconds: 0 }),
                    ..Attributes::default()
                };
                // A node that is held gets them, wherever it is now.
                let finished = onto.finish(name, attributes);
                assert_eq!(finished.is_ok(), made != "directory", "{made} {other}");
                assert_eq!((of(&copies.join(name)), of(&victim)), before, "{made} {other}");
                fs::remove_dir_all(&folder).unwrap();
                fs::create_dir_all(&copies).unwrap();
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_path_leads_out_of_the_destination() {
        let folder = std::env::temp_dir().join(format!("larder-onto-out-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        fs::create_dir_all(folder.join("out")).unwrap();
        fs::write(folder.join("out/file"), "").unwrap();
        symlink(folder.join("out"), folder.join("in/link")).unwrap();
        let mut onto = OntoHost::below(&folder.join("in")).unwrap();
        let new = NewInode { mode: 0o100_600, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        let out = folder.join("out");
        for path in [Path::new("../out"), Path::new("link/../../out"), Path::new("link"), &out] {
            let (name, file) = (&path.join("name"), &path.join("file"));
            onto.make_way_to(name).unwrap_err();
            onto.make_file(name, &new).unwrap_err();
            onto.make_directory(name, &new).unwrap_err();
            onto.link(Path::new("name"), file).unwrap_err();
            onto.finish(file, Attributes::default()).unwrap_err();
            assert!(onto.overwrite_file(file, Keep::Permissions { umask: 0 }).is_err());
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
        onto.make_way_to(Path::new("a/b/name")).unwrap();
        let made = fs::metadata(folder.join("in/a/b")).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(folder).unwrap();
    }

    /// Deeper than directories are held open.
    #[test]
    fn a_directory_that_was_closed_meanwhile_is_known_again() {
        let folder = std::env::temp_dir().join(format!("larder-onto-deep-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut onto = OntoHost::below(&folder).unwrap();
        let new = NewInode { mode: 0o700, uid: 0, gid: 0, umask: 0, device: (0, 0) };
        let deep: PathBuf = (0..MOST_OPEN + 2).map(|_| "d").collect();
        let mut paths: Vec<_> = deep.ancestors().filter(|it| it.file_name().is_some()).collect();
        paths.reverse();
        for path in paths {
            onto.make_directory(path, &new).unwrap();
        }
        onto.make_directory(Path::new("other"), &new).unwrap();
        fs::rename(folder.join("d"), folder.join("away")).unwrap();
        fs::create_dir_all(folder.join(&deep)).unwrap();
        assert!(!onto.is_directory(&deep));
        onto.make_file(&deep.join("file"), &NewInode { mode: 0o100_600, ..new }).unwrap_err();
        fs::remove_dir_all(folder).unwrap();
    }
}
