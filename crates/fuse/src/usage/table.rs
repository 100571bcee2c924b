//! Tables of mounts, as `/proc/PID/mountinfo` shows them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use larder_device::{KernelMount, StandIn};

/// The types of file systems that servers of this kind serve, as the kernel shows them.
const TYPE: &str = "fuse.larder";
const BLOCK_TYPE: &str = "fuseblk.larder";

/// All mounts of a mount namespace that a process can reach, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct MountTable(Vec<MountEntry>);

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its number among all mounts.
    pub id: u64,
    /// The mount that it lies on.
    pub parent: u64,
    /// Number of the mounted file system, which all its mounts share, as `st_dev` has it.
    pub device: u64,
    /// The directory of the file system that is shown.
    pub root: PathBuf,
    /// Where it is mounted.
    pub path: PathBuf,
    /// The type of the file system, as the kernel shows it.
    pub kind: String,
    /// Options of the mount, with commas between them.
    pub options: String,
    /// Options of the file system, which all its mounts share.
    pub superblock_options: String,
    /// Whether a server of this kind serves it.
    pub is_ours: bool,
    /// Whether it is a btrfs, which such a server or the kernel serves.
    pub is_btrfs: bool,
    /// The image file or device that it was mounted from.
    pub source: PathBuf,
    /// The user who mounted it, if the table says so.
    pub owner: Option<u32>,
}

impl MountTable {
    /// The mounts that this process can reach.
    pub fn of_this_process() -> io::Result<Self> {
        Ok(Self::of(KernelMount::of_this_process()?))
    }

    /// The mounts that the process `pid` can reach; none if the caller may not see them.
    pub fn of_process(pid: u32) -> Self {
        Self::of(KernelMount::of_process(pid))
    }

    fn of(mounts: Vec<KernelMount>) -> Self {
        Self(mounts.into_iter().map(MountEntry::of).collect())
    }

    /// The mount at `path`, if a server of this kind serves it. The last mount lies on top.
    pub fn ours_at(&self, path: &Path) -> Option<&MountEntry> {
        self.at(path).filter(|mount| mount.is_ours)
    }

    /// The mount at `path`: the last one lies on top.
    pub fn at(&self, path: &Path) -> Option<&MountEntry> {
        self.0.iter().rfind(|mount| mount.path == path)
    }

    /// All mounts.
    pub fn all(&self) -> impl Iterator<Item = &MountEntry> {
        self.0.iter()
    }

    /// All mounts that servers of this kind serve.
    pub fn ours(&self) -> impl Iterator<Item = &MountEntry> {
        self.0.iter().filter(|mount| mount.is_ours)
    }

    /// All mounts of btrfs, by servers of this kind and by the kernel.
    pub fn of_btrfs(&self) -> impl Iterator<Item = &MountEntry> {
        self.0.iter().filter(|mount| mount.is_btrfs)
    }

    /// All mounts of the file system with this number.
    pub fn of_device(&self, device: u64) -> impl Iterator<Item = &MountEntry> {
        self.0.iter().filter(move |mount| mount.device == device)
    }

    /// A mount at `path` or below, which is an absolute path without symbolic links.
    pub fn at_or_below(&self, path: &Path) -> Option<&MountEntry> {
        self.0.iter().find(|mount| mount.path.starts_with(path))
    }

    /// A mount below `path`, which is an absolute path without symbolic links.
    pub fn below(&self, path: &Path) -> Option<&MountEntry> {
        self.0.iter().find(|mount| mount.path.starts_with(path) && mount.path != path)
    }

    /// The mounts on directories of `mount`.
    pub fn inside<'t>(&'t self, mount: &'t MountEntry) -> impl Iterator<Item = &'t MountEntry> {
        self.0.iter().filter(|other| other.parent == mount.id && other.path != mount.path)
    }
}

impl MountEntry {
    /// Whether the superblock is read-only.
    pub fn has_read_only_superblock(&self) -> bool {
        self.superblock_options.split(',').any(|word| word == "ro")
    }

    fn of(mount: KernelMount) -> Self {
        let KernelMount { id, parent, device, root, path, options, kind, source, .. } = mount;
        let superblock_options = mount.superblock_options;
        let owner = superblock_options.split(',').find_map(|word| word.strip_prefix("user_id="));
        let owner = owner.and_then(|id| id.parse().ok());
        let (is_ours, source) = match &*kind {
            TYPE => (true, named(source)),
            BLOCK_TYPE => (true, StandIn::target_of(&source).unwrap_or(source)),
            _ => (false, source),
        };
        let is_btrfs = is_ours || kind == "btrfs";
        Self {
            id,
            parent,
            device,
            root,
            path,
            kind,
            options,
            superblock_options,
            is_ours,
            is_btrfs,
            source,
            owner,
        }
    }
}

/// The path of a source that the table shows by a descriptor of its server, since it is too long
/// for the kernel. Only root, and the user who runs the server, can look it up.
fn named(source: PathBuf) -> PathBuf {
    if source.starts_with("/proc") { fs::read_link(&source).unwrap_or(source) } else { source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_place_and_file_system() {
        let table = MountTable::of(KernelMount::table(
            b"42 30 0:47 / /m1 rw,noatime shared:3 - fuse.larder /d.img rw,user_id=7,group_id=0\n\
              43 42 0:48 / /m1/in rw - tmpfs none rw\n\
              44 30 0:47 /sub /m\\0402 ro - fuse.larder /d.img rw,user_id=7\n\
              45 30 0:49 / /m3 rw - fuse.larder /other.img rw\n\
              46 30 0:50 / /m3 rw - tmpfs none rw\n\
              not a mount\n",
        ));
        let first = table.ours_at(Path::new("/m1")).unwrap();
        assert_eq!((first.id, first.owner, &*first.source), (42, Some(7), Path::new("/d.img")));
        assert_eq!(table.inside(first).map(|mount| mount.id).collect::<Vec<_>>(), [43]);
        let same: Vec<_> = table.of_device(first.device).map(|mount| &*mount.path).collect();
        assert_eq!(same, [Path::new("/m1"), Path::new("/m 2")]);
        assert!(table.ours_at(Path::new("/m3")).is_none(), "something else lies on top");
        assert_eq!(table.ours().count(), 3);
    }
}
