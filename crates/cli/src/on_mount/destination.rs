//! Copies onto a mount.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use larder::commands::{Command, Original, Timestamp};
use larder::{FileType, NewInode, Uuid};
use larder_copy::{
    ACCESS_ACL, Attributes, DEFAULT_ACL, Destination, Keep, NotKept, give, open_to_overwrite,
};
use larder_platform::HostTree;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FileType as NodeType, makedev, statat};
use rustix::io::Errno;

use super::changes::OnMount;

/// The most data in one command.
const MOST_DATA_BYTES: usize = 256 << 10;
/// The most names that are remembered.
const MOST_NAMES: usize = 4 << 20;
const PERMISSIONS: u32 = 0o7777;
const SET_GID: u32 = 0o2000;
const RWX: u32 = 0o777;
/// The kernel's bound of an extended attribute (`XATTR_SIZE_MAX`).
const MOST_ACL_BYTES: usize = 64 << 10;
/// `ACL_*`: to whom an entry of an ACL applies.
const USER_OBJ: u32 = 1;
const GROUP_OBJ: u32 = 4;
const MASK: u32 = 16;
const OTHER: u32 = 32;
/// An ACL that says no more than permissions, which are set later:  `user::---`, `group::---`,
/// `other::---`.
const NO_ACL: [u8; 28] = [
    2, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 4, 0, 0, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255,
    255, 255, 255,
];
/// The namespace that needs no rights of root.
const OF_USERS: &str = "user.";

/// What a new inode inherits besides what the server sees to.
#[derive(Clone, Copy, Default)]
struct Inherited {
    /// An ACL that leaves it no more than these permissions.
    acl: Option<u32>,
    /// The setgid bit, if it is a directory.
    set_gid: bool,
}

/// A directory of a mount as a destination: paths start there.
pub struct OntoMount {
    changes: OnMount,
    /// Directories that were made: all in them is new.
    made: HashMap<PathBuf, Inherited>,
    /// Directories that were there.
    existing: HashMap<PathBuf, Inherited>,
    /// A name for a file until it replaces another. No other user can guess it.
    temporary: OsString,
    keep: Keep,
    /// Files in the way are overwritten, and not replaced.
    overwrites: bool,
    /// The same directory, for files that this process overwrites itself: the kernel checks then
    /// what it checks for cp.
    tree: HostTree,
    /// The file that is overwritten.
    overwritten: Option<File>,
    /// Names in directories that were made.
    names: Names,
    is_root: bool,
}

impl OntoMount {
    /// Copies below the directory of `changes`. If the destination `overwrites` files in the way,
    /// they keep their attributes and other names.
    pub fn new(changes: OnMount, keep: Keep, overwrites: bool) -> io::Result<Self> {
        let tree = HostTree::of(changes.directory().try_clone_to_owned()?);
        Ok(Self {
            changes,
            keep,
            overwrites,
            tree,
            overwritten: None,
            names: Names::default(),
            made: HashMap::new(),
            existing: HashMap::new(),
            temporary: format!(".larder-new-{}", Uuid::new_v4().as_simple()).into(),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// Waits until all is copied. Returns how many changes failed.
    pub fn finish(self) -> anyhow::Result<usize> {
        self.changes.finish()
    }

    fn make(&mut self, command: &Command<'_>) -> anyhow::Result<()> {
        self.changes.make(command)
    }

    /// Makes an inode at `path` by the command that `at` gives for a path, in place of a file that
    /// may be there. None can be in a directory that was just made.
    fn replace<'c>(
        &mut self,
        path: &'c Path,
        at: impl FnOnce(&'c [u8]) -> Command<'c>,
    ) -> anyhow::Result<()> {
        let is_in_new = path.parent().is_some_and(|parent| self.made.contains_key(parent));
        if is_in_new && self.names.add(path) {
            return self.make(&at(bytes(path)));
        }
        let first = path.with_file_name(&self.temporary);
        let command = moved(at(bytes(path)), bytes(&first));
        self.make(&command)?;
        self.make(&Command::Rename { path: bytes(&first), to: bytes(path) })
    }

    /// What an inode at `path` inherits.
    fn inherited(&mut self, path: &Path) -> Inherited {
        let Some(parent) = path.parent() else { return Inherited::default() };
        if let Some(known) = self.made.get(parent).or_else(|| self.existing.get(parent)) {
            return *known;
        }
        let shown = format!("/proc/self/fd/{}/", self.changes.directory().as_raw_fd());
        let shown = Path::new(&shown).join(parent);
        let mut acl = Vec::with_capacity(MOST_ACL_BYTES);
        let read = rustix::fs::getxattr(&shown, DEFAULT_ACL, spare_capacity(&mut acl));
        let acl = read.ok().map(|_| permissions_of(&acl));
        let set_gid = shown.metadata().is_ok_and(|found| found.mode() & SET_GID != 0);
        let inherited = Inherited { acl, set_gid };
        self.existing.insert(parent.to_owned(), inherited);
        inherited
    }

    /// Takes an inherited ACL from a copy that shall be like the original.
    fn drop_acl(&mut self, path: &Path, inherited: Inherited) -> anyhow::Result<()> {
        if inherited.acl.is_some() && self.keep == Keep::Everything {
            self.set_xattr(path, OsStr::new(ACCESS_ACL), &NO_ACL)?;
        }
        Ok(())
    }

    fn set_permissions(&mut self, path: &Path, permissions: u32) -> anyhow::Result<()> {
        let mode = u64::from(permissions & PERMISSIONS);
        self.make(&Command::Chmod { path: bytes(path), mode })
    }

    fn set_xattr(&mut self, path: &Path, name: &OsStr, data: &[u8]) -> anyhow::Result<()> {
        self.make(&Command::SetXattr { path: bytes(path), name: name.as_bytes(), data })
    }
}

/// Names of inodes that were made, as hashes. A name is new if no other had its hash.
#[derive(Default)]
struct Names(HashSet<u64>);

impl Names {
    /// Adds `path`. Returns whether it is certainly new.
    fn add(&mut self, path: &Path) -> bool {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        self.0.len() < MOST_NAMES && self.0.insert(hasher.finish())
    }
}

/// The same command for another path. It makes an inode.
fn moved<'c>(command: Command<'c>, path: &'c [u8]) -> Command<'c> {
    match command {
        Command::Mkfile { ino, .. } => Command::Mkfile { path, ino },
        Command::Mknod { ino, rdev, mode, .. } => Command::Mknod { path, ino, rdev, mode },
        Command::Mkfifo { ino, rdev, mode, .. } => Command::Mkfifo { path, ino, rdev, mode },
        Command::Mksock { ino, rdev, mode, .. } => Command::Mksock { path, ino, rdev, mode },
        Command::Symlink { ino, target, .. } => Command::Symlink { path, ino, target },
        other => other,
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The permissions that a program would get which asks for those of `new`: a default ACL takes the
/// place of the umask. A chmod(2) that comes later is limited by neither.
fn permissions(new: &NewInode, inherited: Inherited) -> u32 {
    let taken = inherited.acl.map_or(new.umask, |acl| RWX & !acl);
    new.mode & PERMISSIONS & !taken
}

/// The permissions that an ACL (`struct posix_acl_xattr_header` and entries) has as a mode.
fn permissions_of(acl: &[u8]) -> u32 {
    let entries = acl.get(4..).unwrap_or_default().chunks_exact(8);
    let number = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let of = |tag| entries.clone().find(|it| number(it) == tag).map(|it| number(&it[2..]));
    let group = of(MASK).or_else(|| of(GROUP_OBJ));
    let classes = [of(USER_OBJ), group, of(OTHER)];
    classes.into_iter().fold(0, |mode, class| mode << 3 | class.unwrap_or_default() & 7)
}

impl Destination for OntoMount {
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        if path.as_os_str().is_empty() || self.made.contains_key(path) {
            return Ok(());
        }
        if path.parent().is_none_or(|parent| !self.made.contains_key(parent)) {
            match statat(self.changes.directory(), path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if NodeType::from_raw_mode(found.st_mode) == NodeType::Directory => {
                    return Ok(());
                }
                Ok(_) => return Err(Errno::NOTDIR.into()),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let inherited = self.inherited(path);
        self.names.add(path);
        self.make(&Command::Mkdir { path: bytes(path), ino: 0 })?;
        self.drop_acl(path, inherited)?;
        if inherited.acl.is_some() && self.keep == Keep::Everything {
            let name = DEFAULT_ACL.as_bytes();
            self.make(&Command::RemoveXattr { path: bytes(path), name })?;
        }
        let set_gid = if inherited.set_gid { SET_GID } else { 0 };
        self.set_permissions(path, permissions(new, inherited) | set_gid)?;
        let acl = inherited.acl.filter(|_| self.keep != Keep::Everything);
        self.made.insert(path.to_owned(), Inherited { acl, ..inherited });
        Ok(())
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        let found = || statat(self.changes.directory(), path, AtFlags::SYMLINK_NOFOLLOW);
        let is_directory = |mode| NodeType::from_raw_mode(mode) == NodeType::Directory;
        self.made.contains_key(path) || found().is_ok_and(|found| is_directory(found.st_mode))
    }

    fn shown(&self, path: &Path) -> PathBuf {
        self.changes.shown(path)
    }

    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool> {
        self.overwritten = None;
        let is_in_new = path.parent().is_some_and(|parent| self.made.contains_key(parent));
        if is_in_new || !self.overwrites {
            return Ok(false);
        }
        self.overwritten = open_to_overwrite(&mut self.tree, path, keep)?;
        Ok(self.overwritten.is_some())
    }

    fn host_file(&self) -> Option<&File> {
        self.overwritten.as_ref()
    }

    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.overwritten = None;
        self.replace(path, |path| Command::Mkfile { path, ino: 0 })?;
        let inherited = self.inherited(path);
        self.drop_acl(path, inherited)?;
        self.set_permissions(path, permissions(new, inherited))
    }

    fn write(&mut self, path: &Path, data: &[u8], offset: u64) -> anyhow::Result<()> {
        if let Some(file) = &self.overwritten {
            return Ok(file.write_all_at(data, offset)?);
        }
        let path = bytes(path);
        let pieces = data.chunks(MOST_DATA_BYTES).enumerate();
        pieces.into_iter().try_for_each(|(number, data)| {
            let offset = offset + (number * MOST_DATA_BYTES) as u64;
            self.make(&Command::Write { path, offset, data })
        })
    }

    fn set_len(&mut self, path: &Path, len_bytes: u64) -> anyhow::Result<()> {
        if let Some(file) = &self.overwritten {
            return Ok(file.set_len(len_bytes)?);
        }
        self.make(&Command::Truncate { path: bytes(path), size: len_bytes })
    }

    fn start_beside(&mut self, inode: BorrowedFd<'_>) -> Option<(u64, u64)> {
        self.changes.directory_beside(inode)
    }

    fn share(&mut self, path: &Path, original: Original) -> anyhow::Result<()> {
        self.changes.copy(path, original)
    }

    fn discard(&mut self, path: &Path) -> anyhow::Result<()> {
        if self.overwritten.take().is_some() {
            return Ok(());
        }
        self.make(&Command::Unlink { path: bytes(path) })
    }

    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        let (major, minor) = new.device;
        let (rdev, mode) = (makedev(major, minor), u64::from(new.mode));
        let file_type = FileType::from_mode(new.mode);
        self.replace(path, |path| match file_type {
            Some(FileType::Fifo) => Command::Mkfifo { path, ino: 0, rdev: None, mode: None },
            Some(FileType::Socket) => Command::Mksock { path, ino: 0, rdev: None, mode: None },
            _ => Command::Mknod { path, ino: 0, rdev, mode },
        })?;
        let inherited = self.inherited(path);
        self.drop_acl(path, inherited)?;
        self.set_permissions(path, permissions(new, inherited))
    }

    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()> {
        let target = target.as_bytes();
        self.replace(path, |path| Command::Symlink { path, ino: 0, target })
    }

    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()> {
        self.names.add(path);
        self.make(&Command::Link { path: bytes(path), existing: bytes(original) })
    }

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept> {
        if let Some(file) = self.overwritten.take() {
            // Not by its path: another file may be there by now. Closing one descriptor writes back
            // what the kernel caches, which does not change the times later then.
            let inode = file.try_clone()?;
            drop(file);
            return give(inode.as_fd(), attributes, true);
        }
        if let (Some(uid), Some(gid), true) = (attributes.uid, attributes.gid, self.is_root) {
            let (uid, gid) = (uid.into(), gid.into());
            self.make(&Command::Chown { path: bytes(path), uid, gid })?;
        }
        let mut not_kept = NotKept::new();
        for (name, value) in attributes.xattrs.iter().flatten() {
            let is_own = name.as_bytes().starts_with(OF_USERS.as_bytes());
            let is_acl = name == ACCESS_ACL || name == DEFAULT_ACL;
            if is_own || is_acl || self.is_root {
                self.set_xattr(path, name, value)?;
            } else {
                not_kept.push(name.clone());
            }
        }
        if let Some(permissions) = attributes.permissions {
            self.set_permissions(path, permissions)?;
        }
        if let Some(mtime) = attributes.mtime.map(stamp) {
            let atime = attributes.atime.map_or_else(now, |atime| Ok(stamp(atime)))?;
            let (path, otime) = (bytes(path), None);
            self.make(&Command::Utimes { path, atime, mtime, ctime: mtime, otime })?;
        }
        Ok(not_kept)
    }
}

fn stamp(time: larder::Timestamp) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn now() -> anyhow::Result<Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    ensure!(i64::try_from(now.as_secs()).is_ok(), "the clock is wrong");
    Ok(Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() })
}
