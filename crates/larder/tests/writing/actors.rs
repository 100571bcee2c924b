//! The same calls to the kernel and to this library.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder::{
    AllocateMode, FileType, NewInode, RenameMode, SetAttributes, SnapshotKind, Subvolume, XattrMode,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, IFlags, Mode, OFlags, RenameFlags, Uid, XattrFlags,
};
use rustix::io::Errno;

/// The result of a call; the error is a number of the operating system.
pub(crate) type Done = Result<(), i32>;

/// An actor does the calls.
pub(crate) trait Actor {
    fn mkdir(&self, path: &str, mode: u32) -> Done;
    fn mknod(&self, path: &str, mode: u32, device: (u32, u32)) -> Done;
    fn symlink(&self, target: &str, path: &str) -> Done;
    fn link(&self, original: &str, path: &str) -> Done;
    fn unnamed(&self, directory: &str, mode: u32, name: Option<&str>) -> Done;
    fn unlink(&self, path: &str) -> Done;
    fn rmdir(&self, path: &str) -> Done;
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done;
    fn chmod(&self, path: &str, mode: u32) -> Done;
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done;
    fn set_xattr(&self, path: &str, name: &str, value: &[u8], mode: XattrMode) -> Done;
    fn remove_xattr(&self, path: &str, name: &str) -> Done;
    fn set_flags(&self, path: &str, flags: u32) -> Done;
    fn write(&self, path: &str, data: &[u8]) -> Done;
    fn write_at(&self, path: &str, data: &[u8], offset: u64) -> Done;
    fn truncate(&self, path: &str, len_bytes: u64) -> Done;
    fn punch(&self, path: &str, offset: u64, len_bytes: u64) -> Done;
    fn allocate(&self, path: &str, offset: u64, len_bytes: u64) -> Done;
    fn zero_range(&self, path: &str, offset: u64, len_bytes: u64) -> Done;
    /// Shares all data of `source`.
    fn clone_range(&self, path: &str, source: &str, offset: u64) -> Done;
    fn subvolume(&self, path: &str) -> Done;
    fn snapshot(&self, source: &str, path: &str, kind: SnapshotKind) -> Done;
    fn delete_subvolume(&self, path: &str) -> Done;
}

pub(crate) struct Kernel<'m>(pub(crate) &'m Path);

impl Kernel<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Opens an inode that is no symbolic link, without waiting for the other end of a pipe.
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, i32> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = rustix::fs::open(self.path(path), flags, Mode::empty());
        opened.map_err(Errno::raw_os_error)
    }

    fn fallocate(&self, path: &str, flags: FallocateFlags, offset: u64, len_bytes: u64) -> Done {
        let file = self.open(path, OFlags::WRONLY)?;
        errno(rustix::fs::fallocate(&file, flags, offset, len_bytes))
    }

    fn btrfs(&self, arguments: &[&str]) -> Done {
        let output = std::process::Command::new("btrfs")
            .args(arguments)
            .current_dir(self.0)
            .output()
            .expect("btrfs starts");
        if output.status.success() {
            return Ok(());
        }
        // Shown if the test fails.
        println!("{}", String::from_utf8_lossy(&output.stderr));
        Err(Errno::INVAL.raw_os_error())
    }
}

fn errno<T>(result: Result<T, Errno>) -> Done {
    result.map(drop).map_err(Errno::raw_os_error)
}

impl Actor for Kernel<'_> {
    fn mkdir(&self, path: &str, mode: u32) -> Done {
        errno(rustix::fs::mkdir(self.path(path), Mode::from(mode)))
    }

    fn mknod(&self, path: &str, mode: u32, (major, minor): (u32, u32)) -> Done {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let device = rustix::fs::makedev(major, minor);
        errno(rustix::fs::mknodat(CWD, self.path(path), kind, Mode::from(mode & 0o7777), device))
    }

    fn symlink(&self, target: &str, path: &str) -> Done {
        errno(rustix::fs::symlink(target, self.path(path)))
    }

    fn link(&self, original: &str, path: &str) -> Done {
        errno(rustix::fs::link(self.path(original), self.path(path)))
    }

    fn unnamed(&self, directory: &str, mode: u32, name: Option<&str>) -> Done {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let opened = rustix::fs::open(self.path(directory), flags, Mode::from(mode));
        let file = opened.map_err(Errno::raw_os_error)?;
        let Some(name) = name else { return Ok(()) };
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = AtFlags::SYMLINK_FOLLOW;
        errno(rustix::fs::linkat(CWD, source, CWD, self.path(name), follow))
    }

    fn unlink(&self, path: &str) -> Done {
        errno(rustix::fs::unlink(self.path(path)))
    }

    fn rmdir(&self, path: &str) -> Done {
        errno(rustix::fs::rmdir(self.path(path)))
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        errno(rustix::fs::renameat_with(CWD, self.path(from), CWD, self.path(to), flags))
    }

    fn chmod(&self, path: &str, mode: u32) -> Done {
        errno(rustix::fs::chmod(self.path(path), Mode::from(mode)))
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        errno(rustix::fs::chownat(CWD, self.path(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8], mode: XattrMode) -> Done {
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        errno(rustix::fs::lsetxattr(self.path(path), name, value, flags))
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        let name = CString::new(name).expect("a plain name");
        errno(rustix::fs::lremovexattr(self.path(path), name))
    }

    fn set_flags(&self, path: &str, flags: u32) -> Done {
        let file = self.open(path, OFlags::RDONLY)?;
        errno(rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(flags)))
    }

    fn write_at(&self, path: &str, data: &[u8], offset: u64) -> Done {
        let file = File::from(self.open(path, OFlags::WRONLY)?);
        file.write_all_at(data, offset).map_err(|error| error.raw_os_error().expect("a number"))
    }

    fn truncate(&self, path: &str, len_bytes: u64) -> Done {
        errno(rustix::fs::ftruncate(self.open(path, OFlags::WRONLY)?, len_bytes))
    }

    fn punch(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(path, flags, offset, len_bytes)
    }

    fn allocate(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        self.fallocate(path, FallocateFlags::empty(), offset, len_bytes)
    }

    fn zero_range(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        self.fallocate(path, FallocateFlags::ZERO_RANGE, offset, len_bytes)
    }

    fn clone_range(&self, path: &str, source: &str, offset: u64) -> Done {
        let file = File::from(self.open(path, OFlags::WRONLY)?);
        let source = File::from(self.open(source, OFlags::RDONLY)?);
        errno(larder_testkit::clone_range(&file, offset, &source, 0, 0))
    }

    fn write(&self, path: &str, data: &[u8]) -> Done {
        let file = File::options().write(true).create(true).truncate(false).open(self.path(path));
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, data));
        written.map_err(|error| error.raw_os_error().expect("a system's error"))
    }

    fn subvolume(&self, path: &str) -> Done {
        self.btrfs(&["subvolume", "create", path])
    }

    fn snapshot(&self, source: &str, path: &str, kind: SnapshotKind) -> Done {
        match kind {
            SnapshotKind::ReadOnly => self.btrfs(&["subvolume", "snapshot", "-r", source, path]),
            SnapshotKind::Writable => self.btrfs(&["subvolume", "snapshot", source, path]),
        }
    }

    fn delete_subvolume(&self, path: &str) -> Done {
        self.btrfs(&["subvolume", "delete", path])
    }
}

pub(crate) struct Larder(pub(crate) Subvolume);

fn number<T>(result: larder::Result<T>) -> Done {
    result.map(drop).map_err(|error| error.errno())
}

/// The umask of the test's process.
const UMASK: u32 = 0o022;

impl Larder {
    /// As root, like the kernel's side, and with the same umask.
    fn new_inode(mode: u32, device: (u32, u32)) -> NewInode {
        NewInode { mode, uid: 0, gid: 0, umask: UMASK, device }
    }

    fn file(&self, path: &str) -> larder::Result<larder::File> {
        self.0.lookup(path)?.into_file()
    }

    fn change(&self, path: &str, attributes: &SetAttributes) -> Done {
        number(self.0.lookup(path).and_then(|inode| inode.set_attributes(attributes)))
    }
}

impl Actor for Larder {
    fn mkdir(&self, path: &str, mode: u32) -> Done {
        self.mknod(path, 0o040_000 | mode, (0, 0))
    }

    fn mknod(&self, path: &str, mode: u32, device: (u32, u32)) -> Done {
        number(self.0.create_inode(path, &Self::new_inode(mode, device)))
    }

    fn symlink(&self, target: &str, path: &str) -> Done {
        number(self.0.symlink(target, path))
    }

    fn link(&self, original: &str, path: &str) -> Done {
        number(self.0.hard_link(original, path))
    }

    fn unnamed(&self, directory: &str, mode: u32, name: Option<&str>) -> Done {
        let new = Self::new_inode(0o100_000 | mode, (0, 0));
        let directory = self.0.open_directory(directory).map_err(|error| error.errno())?;
        let file = directory.create_unnamed(&new).map_err(|error| error.errno())?;
        assert_eq!((file.file_type(), file.metadata().nlink), (FileType::Regular, 0));
        name.map_or(Ok(()), |name| number(self.0.link(&file, name)))
    }

    fn unlink(&self, path: &str) -> Done {
        number(self.0.remove_file(path))
    }

    fn rmdir(&self, path: &str) -> Done {
        number(self.0.remove_directory(path))
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        const WHITEOUT: RenameFlags = RenameFlags::WHITEOUT;
        const NOREPLACE: RenameFlags = RenameFlags::NOREPLACE;
        let mode = if flags == RenameFlags::EXCHANGE {
            RenameMode::Exchange
        } else if flags == WHITEOUT {
            RenameMode::Whiteout { uid: 0, gid: 0 }
        } else if flags == WHITEOUT | NOREPLACE {
            RenameMode::NoReplaceWhiteout { uid: 0, gid: 0 }
        } else if flags == NOREPLACE {
            RenameMode::NoReplace
        } else {
            RenameMode::Replace
        };
        number(self.0.rename_with(from, to, mode))
    }

    fn chmod(&self, path: &str, mode: u32) -> Done {
        let attributes = SetAttributes { permissions: Some(mode), ..Default::default() };
        number(self.0.resolve(path).and_then(|inode| inode.set_attributes(&attributes)))
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done {
        self.change(path, &SetAttributes { uid: Some(uid), gid: Some(gid), ..Default::default() })
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8], mode: XattrMode) -> Done {
        number(self.0.lookup(path).and_then(|inode| inode.set_xattr(name, value, mode)))
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        number(self.0.lookup(path).and_then(|inode| inode.remove_xattr(name)))
    }

    fn set_flags(&self, path: &str, flags: u32) -> Done {
        let inode = self.0.lookup(path).map_err(|error| error.errno())?;
        // The kernel asks its file systems about files and directories only.
        if !matches!(inode.file_type(), FileType::Regular | FileType::Directory) {
            return Err(Errno::OPNOTSUPP.raw_os_error());
        }
        number(inode.set_ioctl_flags(flags))
    }

    fn write_at(&self, path: &str, data: &[u8], offset: u64) -> Done {
        number(self.file(path).and_then(|file| file.write_at(data, offset)))
    }

    fn truncate(&self, path: &str, len_bytes: u64) -> Done {
        number(self.file(path).and_then(|file| file.set_len(len_bytes)))
    }

    fn punch(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        number(self.file(path).and_then(|file| file.punch_hole(offset, len_bytes)))
    }

    fn allocate(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        let grow = AllocateMode::Grow;
        number(self.file(path).and_then(|file| file.allocate(offset, len_bytes, grow)))
    }

    fn zero_range(&self, path: &str, offset: u64, len_bytes: u64) -> Done {
        let grow = AllocateMode::Grow;
        number(self.file(path).and_then(|file| file.zero_range(offset, len_bytes, grow)))
    }

    fn clone_range(&self, path: &str, source: &str, offset: u64) -> Done {
        let source = self.file(source).map_err(|error| error.errno())?;
        number(self.file(path).and_then(|file| file.clone_range(&source, 0, 0, offset)))
    }

    fn write(&self, path: &str, data: &[u8]) -> Done {
        let file = match self.0.open_file(path) {
            Ok(file) => file,
            Err(_) => self
                .0
                .create_inode(path, &Self::new_inode(0o100_666, (0, 0)))
                .and_then(larder::Inode::into_file)
                .map_err(|error| error.errno())?,
        };
        number(file.write_at(data, 0))
    }

    fn subvolume(&self, path: &str) -> Done {
        number(self.0.create_subvolume(path))
    }

    fn snapshot(&self, source: &str, path: &str, kind: SnapshotKind) -> Done {
        let source =
            self.0.open_directory(source).and_then(|root| root.into_inode().into_subvolume());
        number(source.and_then(|source| source.snapshot_to(&self.0, path, kind)))
    }

    fn delete_subvolume(&self, path: &str) -> Done {
        number(self.0.delete_subvolume(path))
    }
}
