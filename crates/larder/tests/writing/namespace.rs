//! The same calls to the kernel and to this library, on two images alike: each is refused by both with the
//! same error or by neither, and what comes of them is the same.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder::{
    AllocateMode, FileType, Filesystem, NewInode, RenameMode, SetAttributes, SnapshotKind,
    Subvolume, XattrMode,
};
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Manifest, Scale, assert_same};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, IFlags, Mode, OFlags, RenameFlags, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::{check, open, support};

/// What is called; the error is a number of the operating system.
pub(crate) type Done = Result<(), i32>;

/// Somebody who does what is asked for.
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
    /// Shares all that `source` has.
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

    /// Opens what is no symbolic link, without waiting for whoever is at the other end of a pipe.
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

/// What the test's process has as its umask.
const UMASK: u32 = 0o022;

impl Larder {
    /// By root, as the kernel's side, and with the umask that it has.
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

/// Has `act` done by both on images alike, and compares.
fn same(name: &str, act: impl Fn(&dyn Actor) -> Vec<Done>) {
    let spec = ImageSpec::new(name);
    let images: [KernelImage; 2] =
        std::array::from_fn(|_| KernelImage::build(&spec, &Content::new(41).scale(Scale::Small)));
    let theirs = {
        let mount = images[0].mount("");
        act(&Kernel(mount.path()))
    };
    let fs = open(&images[1]);
    let ours = act(&Larder(fs.subvolume("/").unwrap()));
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "call {number}");
    }
    assert_eq!(ours.len(), theirs.len());
    finish(fs, &images);
}

fn finish(fs: Filesystem, images: &[KernelImage; 2]) {
    fs.sync().unwrap();
    let mut seen = support::manifest(&fs);
    drop(fs);
    check(&images[1], "all");
    let mount = |image: &KernelImage| -> Manifest {
        let mount: KernelMount = image.mount("ro,noatime");
        without_times(Manifest::of_tree(mount.path()))
    };
    let theirs = mount(&images[0]);
    assert_same(&theirs, &mount(&images[1]));
    seen = without_times(seen);
    assert_same(&theirs, &seen);
}

fn without_times(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        (entry.atime, entry.mtime, entry.ctime, entry.otime) = Default::default();
    }
    manifest
}

pub(crate) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

pub(crate) const ACCESS: &str = "system.posix_acl_access";
pub(crate) const DEFAULT: &str = "system.posix_acl_default";
pub(crate) const COMPRESSION: &str = "btrfs.compression";
const NONE: u32 = u32::MAX;
pub(crate) const USER: [(u16, u16, u32); 5] =
    [(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (0x10, 6, NONE), (0x20, 4, NONE)];
const PLAIN: [(u16, u16, u32); 3] = [(1, 6, NONE), (4, 5, NONE), (0x20, 1, NONE)];
const ANY: XattrMode = XattrMode::Any;
const FIFO: u32 = 0o010_000;
const REGULAR: u32 = 0o100_000;

#[test]
fn acls_change_modes_and_modes_change_acls() {
    same("acls", |by| {
        let mut done = vec![
            by.mkdir("d", 0o755),
            by.chmod("d", 0o2755),
            by.mknod("file", REGULAR | 0o640, (0, 0)),
            by.symlink("file", "link"),
            by.mknod("pipe", FIFO | 0o666, (0, 0)),
            by.set_xattr("file", ACCESS, &acl(&USER), ANY),
            by.set_xattr("pipe", ACCESS, &acl(&USER), ANY),
            by.set_xattr("link", ACCESS, &acl(&USER), ANY),
            by.set_xattr("file", DEFAULT, &acl(&USER), ANY),
            by.set_xattr("file", DEFAULT, b"", ANY),
            by.chmod("file", 0o4751),
            by.set_xattr("pipe", ACCESS, &acl(&PLAIN), XattrMode::Create),
            by.set_xattr("d", DEFAULT, &acl(&USER), XattrMode::Replace),
            by.set_xattr("d", ACCESS, &acl(&USER), ANY),
            by.remove_xattr("d", ACCESS),
            by.remove_xattr("d", ACCESS),
            by.chown("d", 1000, 2000),
        ];
        for number in 0..USER.len() {
            let mut bad = USER;
            bad[number].1 = 8;
            done.push(by.set_xattr("file", ACCESS, &acl(&bad), ANY));
            bad = USER;
            bad[number].2 = 7;
            done.push(by.set_xattr(&format!("file-{number}"), ACCESS, &acl(&bad), ANY));
            bad.swap(number, (number + 1) % USER.len());
            done.push(by.set_xattr("file", ACCESS, &acl(&bad), ANY));
            let mut short = USER.to_vec();
            short.remove(number);
            done.push(by.set_xattr("file", ACCESS, &acl(&short), ANY));
        }
        done.push(by.set_xattr("file", ACCESS, &acl(&USER)[..20], ANY));
        done.push(by.set_xattr("file", ACCESS, &[3, 0, 0, 0], ANY));
        done.push(by.set_xattr("file", ACCESS, &[2, 0, 0], ANY));
        done
    });
}

#[test]
fn directories_pass_acls_groups_flags_and_properties_on() {
    same("inheriting", |by| {
        let mut done = vec![
            by.mkdir("acl", 0o755),
            by.set_xattr("acl", DEFAULT, &acl(&USER), ANY),
            by.mkdir("plain", 0o755),
            by.chown("plain", 7, 8),
            by.chmod("plain", 0o2755),
            by.set_xattr("plain", DEFAULT, &acl(&PLAIN), ANY),
            by.mkdir("compressed", 0o755),
            by.set_xattr("compressed", COMPRESSION, b"zstd:7", ANY),
            by.mkdir("never", 0o755),
            by.set_xattr("never", COMPRESSION, b"none", ANY),
            by.mkdir("in-place", 0o755),
            by.set_flags("in-place", 0x80_0000),
            by.mkdir("setgid", 0o755),
            by.chown("setgid", 1, 2),
            by.chmod("setgid", 0o2775),
        ];
        // Of its root a subvolume takes over other things than of its directory.
        done.extend([
            by.subvolume("around"),
            by.mkdir("around/folder", 0o755),
            by.set_xattr("around", COMPRESSION, b"lzo", ANY),
            by.subvolume("around/folder/within"),
        ]);
        for folder in ["acl", "plain", "compressed", "never", "in-place", "setgid"] {
            let path = |name: &str| format!("{folder}/{name}");
            done.extend([
                by.mknod(&path("file"), REGULAR | 0o666, (0, 0)),
                by.mknod(&path("secret"), REGULAR | 0o600, (0, 0)),
                by.mknod(&path("run"), REGULAR | 0o777, (0, 0)),
                by.mkdir(&path("folder"), 0o777),
                by.mknod(&path("folder/below"), REGULAR | 0o666, (0, 0)),
                by.mknod(&path("device"), 0o060_660, (8, 300)),
                by.symlink("file", &path("link")),
                by.unnamed(folder, 0o666, Some(&path("named"))),
                by.unnamed(folder, 0o666, None),
                by.write(&path("written"), &[7; 5000]),
                by.subvolume(&path("subvolume")),
                by.mknod(&path("subvolume/file"), REGULAR | 0o666, (0, 0)),
                by.rename(&path("file"), &path("moved"), RenameFlags::WHITEOUT),
            ]);
        }
        done
    });
}

#[test]
fn flags_and_the_property_go_together() {
    same("flags", |by| {
        let mut done = vec![
            by.write("filled", &[1; 9000]),
            by.mknod("empty", REGULAR | 0o644, (0, 0)),
            by.mkdir("folder", 0o755),
            by.mknod("pipe", FIFO | 0o644, (0, 0)),
            by.set_xattr("pipe", COMPRESSION, b"zstd", ANY),
            by.remove_xattr("pipe", COMPRESSION),
        ];
        // Compressed, not so, copied in place, those together, synchronous directory, unknown.
        let flags =
            [0x4, 0x400, 0x80_0000, 0x404, 0x80_0004, 0x1_0080, 0x8, 0x40, 0x1, 0x10_0000, 0];
        for path in ["filled", "empty", "folder"] {
            done.extend(flags.map(|flags| by.set_flags(path, flags)));
            for value in ["zstd", "zlib:9", "lzo", "no", "zstd-and-more", "bogus", "", ""] {
                done.push(by.set_xattr(path, COMPRESSION, value.as_bytes(), ANY));
            }
            done.extend([
                by.remove_xattr(path, COMPRESSION),
                by.set_xattr(path, COMPRESSION, b"zstd", XattrMode::Replace),
                by.set_xattr(path, COMPRESSION, b"zstd", XattrMode::Create),
                by.set_flags(path, 0x4 | 0x80),
                by.set_flags(path, 0x80_0000),
                by.set_xattr(path, COMPRESSION, b"lzo", ANY),
            ]);
        }
        done.extend([
            by.set_flags("filled", 0x20),
            by.chmod("filled", 0o600),
            by.unlink("filled"),
            by.link("filled", "other"),
            by.rename("filled", "other", RenameFlags::empty()),
            by.set_flags("folder", 0x10),
            by.mkdir("folder/new", 0o755),
            by.unnamed("folder", 0o644, None),
            by.rmdir("folder"),
            by.set_xattr("folder", "user.name", b"value", ANY),
        ]);
        done
    });
}

#[test]
fn owners_change_and_privileges_go() {
    const CAPABILITIES: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    same("owners", |by| {
        let mut done = vec![by.mkdir("folder", 0o755), by.chmod("folder", 0o6755)];
        for mode in [0o6755, 0o2745, 0o4711, 0o755] {
            let path = format!("file-{mode:o}");
            done.extend([
                by.mknod(&path, REGULAR | 0o644, (0, 0)),
                by.chmod(&path, mode),
                by.set_xattr(&path, "security.capability", &CAPABILITIES, ANY),
                by.chown(&path, 5, 6),
            ]);
        }
        done.push(by.chown("folder", 5, 6));
        done
    });
}

#[test]
fn what_stands_for_a_subvolume_in_a_snapshot_is_replaced() {
    const PLAIN: RenameFlags = RenameFlags::empty();
    same("stand-ins", |by| {
        let mut done = vec![by.subvolume("a")];
        for nested in ["one", "two", "three", "four", "five", "six"] {
            done.push(by.subvolume(&format!("a/{nested}")));
        }
        done.extend([
            by.snapshot("a", "s", SnapshotKind::Writable),
            by.mkdir("s/folder", 0o755),
            by.write("s/folder/file", b"kept"),
            by.mkdir("s/other", 0o755),
            by.write("s/plain", b"plain"),
            by.subvolume("s/real"),
            by.rename("s/plain", "s/one", PLAIN),
            by.rename("s/one", "s/folder", PLAIN),
            by.rename("s/one", "s/new", PLAIN),
            by.rename("s/other", "s/one", RenameFlags::NOREPLACE),
            by.rename("s/folder", "s/one", PLAIN),
            by.rename("s/real", "s/two", PLAIN),
            by.rename("s/other", "s/three", RenameFlags::WHITEOUT),
            by.rename("s/one", "s/four", PLAIN),
            by.rename("s/four", "s/two", PLAIN),
            by.mkdir("top", 0o755),
            by.rename("top", "s/five", PLAIN),
            by.write("s/four/file", b"still there"),
            by.rmdir("s/six"),
        ]);
        done
    });
}

#[test]
fn renames_leave_whiteouts_and_move_subvolumes() {
    const PLAIN: RenameFlags = RenameFlags::empty();
    const EXCHANGE: RenameFlags = RenameFlags::EXCHANGE;
    const WHITEOUT: RenameFlags = RenameFlags::WHITEOUT;
    const NOREPLACE: RenameFlags = RenameFlags::NOREPLACE;
    same("renames", |by| {
        vec![
            by.mkdir("d", 0o755),
            by.mkdir("e", 0o755),
            by.write("d/one", b"one"),
            by.write("e/two", b"two"),
            by.rename("d/one", "e/two", WHITEOUT | NOREPLACE),
            by.rename("d/one", "e/three", WHITEOUT | NOREPLACE),
            by.rename("e/two", "e/three", WHITEOUT),
            by.rename("d/one", "e/two", PLAIN),
            by.rename("e", "d/e", WHITEOUT),
            by.subvolume("a"),
            by.subvolume("b"),
            by.write("a/file", b"in a"),
            by.write("b/file", b"in b"),
            by.rename("a", "d/a", PLAIN),
            by.rename("d/a", "b/a", PLAIN),
            by.rename("b/a/file", "b/other", PLAIN),
            by.rename("b", "b/a/b", PLAIN),
            by.rename("b", "d/b", WHITEOUT),
            by.mkdir("empty", 0o755),
            by.mkdir("full", 0o755),
            by.mkdir("full/x", 0o755),
            by.rename("d/b/a", "full", PLAIN),
            by.rename("d/b/a", "empty", PLAIN),
            by.rename("full", "empty", PLAIN),
            by.rename("d/b", "empty", PLAIN),
            by.rename("d/b", "empty", EXCHANGE),
            by.rename("d/b", "full", EXCHANGE),
            by.rename("d/e/three", "full", EXCHANGE),
            by.rename("full", "d/b/new", PLAIN),
            by.rename("d/b/file", "full/moved", NOREPLACE),
            by.snapshot("empty", "read-only", SnapshotKind::ReadOnly),
            by.rename("read-only", "renamed", PLAIN),
            by.rename("renamed", "d/renamed", PLAIN),
            by.rename("renamed", "d/b", EXCHANGE),
            by.rename("renamed/file", "renamed/other", PLAIN),
            by.rename("d", "empty", PLAIN),
            by.rename("missing", "empty", PLAIN),
        ]
    });
}
