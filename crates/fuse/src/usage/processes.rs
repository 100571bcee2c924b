//! Processes, as `/proc` shows them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use larder_device::parse_device_number;
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, makedev, statx};

use super::{Identity, MountEntry, MountTable};

/// A process that the caller can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
}

/// All processes that the caller can see, except this one.
pub fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id())
        .map(|pid| Process { pid })
}

/// One process of each mount namespace that the caller can see, with the mounts that it can reach.
/// The namespace of this process comes first.
pub fn namespaces() -> impl Iterator<Item = (Process, MountTable)> {
    let this = Process { pid: std::process::id() };
    let mut seen = HashSet::new();
    [this]
        .into_iter()
        .chain(processes())
        .filter(move |process| {
            fs::read_link(process.entry("ns/mnt")).is_ok_and(|it| seen.insert(it))
        })
        .map(|process| (process, MountTable::of_process(process.pid)))
}

impl Process {
    fn entry(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.pid).into()
    }

    /// The words that it was started with; none if it is gone.
    pub fn command_line(self) -> Vec<OsString> {
        let words = fs::read(self.entry("cmdline")).unwrap_or_default();
        let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    /// How it uses the file system with the number `device`: a directory, an open file or a mapped
    /// one. The first use that is found.
    pub fn use_of(self, device: u64) -> Option<String> {
        let is_in = |path: &Path| device_of(path) == Some(device);
        for (name, text) in
            [("cwd", "is in a directory of it"), ("root", "has its root directory there")]
        {
            if is_in(&self.entry(name)) {
                return Some(text.to_owned());
            }
        }
        let open = self.open_files().find(|file| is_in(file));
        if let Some(target) = open.and_then(|file| fs::read_link(file).ok()) {
            return Some(format!("has {} open", target.display()));
        }
        let maps = fs::read(self.entry("maps")).unwrap_or_default();
        maps.split(|byte| *byte == b'\n').find_map(|line| {
            // An address, permissions, an offset, the device, an inode, a path.
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let is_there =
                fields.nth(3).and_then(|field| parse_device_number(field, 16)) == Some(device);
            let path = fields.nth(1).filter(|_| is_there)?;
            Some(format!("has {} mapped", String::from_utf8_lossy(path)))
        })
    }

    /// A file of the file system with the number `device` that it has open for writing. The first
    /// that is found.
    pub fn write_to(self, device: u64) -> Option<String> {
        let file = self.open_files().find(|file| {
            device_of(file) == Some(device)
                && self.open_flags(file).is_some_and(|flags| flags & 3 != 0)
        })?;
        Some(format!("has {} open for writing", fs::read_link(file).ok()?.display()))
    }

    /// The flags with which `file` was opened.
    fn open_flags(self, file: &Path) -> Option<u32> {
        let info = fs::read_to_string(self.entry("fdinfo").join(file.file_name()?)).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    }

    /// Whether it has the file or block device at `path` open, and not only found (`O_PATH`), which
    /// needs no permission.
    pub fn has_open(self, path: &Path) -> bool {
        let Some(wanted) = Identity::at(path) else { return false };
        self.open_files().any(|file| {
            let is_path = |flags| OFlags::from_bits_retain(flags).contains(OFlags::PATH);
            Identity::at(&file) == Some(wanted) && !self.open_flags(&file).is_some_and(is_path)
        })
    }

    /// Whether it holds a lock of the whole file or block device at `path`.
    pub fn has_locked(self, path: &Path) -> bool {
        let Some(wanted) = Identity::at(path) else { return false };
        self.open_files().any(|file| {
            let is_it = Identity::at(&file) == Some(wanted);
            let number = file.file_name().and_then(|number| number.to_str()).unwrap_or_default();
            let info = || fs::read_to_string(self.entry(&format!("fdinfo/{number}")));
            is_it && info().is_ok_and(|info| info.contains("FLOCK  ADVISORY  WRITE"))
        })
    }

    /// Whether it has the source of `mount` open. The process `seer` can reach that mount.
    pub fn serves(self, mount: &MountEntry, seer: Self) -> bool {
        let Ok(source) = mount.source.strip_prefix("/") else { return false };
        let source = seer.entry("root").join(source);
        let file = backing_file(&source).unwrap_or_else(|| source.clone());
        mount.is_ours && (self.has_open(&source) || self.has_open(&file))
    }

    fn open_files(self) -> impl Iterator<Item = PathBuf> {
        let files = fs::read_dir(self.entry("fd")).into_iter().flatten().flatten();
        files.map(|file| file.path())
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = fs::read_to_string(self.entry("comm")).unwrap_or_default();
        write!(f, "process {} ({})", self.pid, name.trim_end())
    }
}

/// What the loop device `device` is attached to, if it is one.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let number = device.metadata().ok().filter(|found| found.file_type().is_block_device())?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = fs::read(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
    Some(OsString::from_vec(path.trim_ascii_end().to_vec()).into())
}

/// The number of the file system that `path` leads into. Asking for no more needs no permission on
/// the file, and no answer of a server.
fn device_of(path: &Path) -> Option<u64> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some(makedev(found.stx_dev_major, found.stx_dev_minor))
}
