//! The other users of a file or a block device, and where they use it.
//!
//! # Invariants
//! - Nothing here changes, locks or claims a device for longer than the call.
//! - Uses that cannot be seen (in another mount namespace, or through unreadable files of `/sys`)
//!   count as none: the guard is the exclusive claim of [`FileDevice`](crate::FileDevice). This
//!   module explains it, and for attached files it is the guard too.
//! - Chains of users are followed for a bounded number of steps.

mod block;
mod loops;
mod mounts;

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) use loops::{backing_path, is_stand_in};

use crate::lock;

/// Chains such as loop devices on loop devices on partitions are followed to this depth.
pub(crate) const MAX_CHAIN: usize = 8;

/// A use of a file or block device that excludes writing to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// A kernel has it mounted. `at` is `None` if the mount is in another mount namespace.
    Mounted {
        /// One of the mount points.
        at: Option<PathBuf>,
    },
    /// It is active swap space.
    Swap,
    /// Another program has it open as its only writer.
    Locked,
    /// It belongs to another device or file, which may be in use in turn.
    Linked {
        /// The relation of the two.
        link: Link,
        /// The other device or file.
        other: PathBuf,
        /// The use of the other, if there is one.
        then: Option<Box<InUse>>,
    },
}

/// The relation of a device or file to another that prevents writing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The other is a loop device attached to it.
    AttachedAs,
    /// The other is one of its partitions.
    Partition,
    /// The other is a device mapper, md or similar device made from it.
    HeldBy,
    /// It is a loop device attached to the other.
    BackedBy,
}

impl InUse {
    /// Whether the use may end by itself in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Locked => true,
            Self::Mounted { .. } | Self::Swap => false,
            Self::Linked { link: Link::AttachedAs, then, .. } => {
                then.as_deref().is_none_or(Self::may_pass)
            }
            Self::Linked { then, .. } => then.as_deref().is_some_and(Self::may_pass),
        }
    }

    /// The remedy, innermost use first.
    fn remedy(&self) -> &'static str {
        match self {
            Self::Mounted { .. } => "unmount it first",
            Self::Swap => "disable that swap space first",
            Self::Locked => "wait for that program to finish",
            Self::Linked { link: Link::AttachedAs, then, .. } => match then.as_deref() {
                None => "detach it first",
                Some(Self::Mounted { .. }) => "unmount and detach it first",
                Some(_) => "end that use and detach it first",
            },
            Self::Linked { link: Link::Partition | Link::BackedBy, then: Some(then), .. } => {
                then.remedy()
            }
            Self::Linked { .. } => "remove that device first",
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at: Some(at) } => write!(f, "mounted at {}", at.display()),
            Self::Mounted { at: None } => f.write_str("mounted, not visibly from here"),
            Self::Swap => f.write_str("active swap space"),
            Self::Locked => f.write_str("opened for writing by another program"),
            Self::Linked { link, other, then } => {
                let link = match link {
                    Link::AttachedAs => "attached as",
                    Link::Partition => "divided into",
                    Link::HeldBy => "held by",
                    Link::BackedBy => "backed by",
                };
                write!(f, "{link} {}", other.display())?;
                match then {
                    None => Ok(()),
                    Some(then) => {
                        f.write_str(", which is ")?;
                        then.describe(f)
                    }
                }
            }
        }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f)?;
        write!(f, "; {}", self.remedy())
    }
}

/// The use of the file or block device at `path` that excludes writing to it, if there is one.
/// Readers should warn: their data may change meanwhile.
///
/// Errors are those of looking at `path` itself.
pub fn in_use(path: impl AsRef<Path>) -> io::Result<Option<InUse>> {
    let path = path.as_ref();
    let metadata = path.metadata()?;
    let Some(identity) = Identity::of(&metadata) else { return Ok(None) };
    if let Some(by) = find_use(identity, Mounts::All) {
        return Ok(Some(by));
    }
    if lock::is_locked(&File::open(path)?)? {
        return Ok(Some(InUse::Locked));
    }
    Ok(lock::lock_backing_files(identity).err())
}

/// Whether a program has the file or block device at `path`, or the target of a loop device, open
/// as its only writer.
pub fn has_writer(path: impl AsRef<Path>) -> io::Result<bool> {
    let file = File::open(path)?;
    if lock::is_locked(&file)? {
        return Ok(true);
    }
    let identity = Identity::of(&file.metadata()?);
    Ok(identity.is_some_and(|identity| lock::lock_backing_files(identity).is_err()))
}

/// The node of the partition that takes `len_bytes` from `offset` on of the disk at `path`, if that is
/// a block device and the kernel knows this partition.
pub fn partition_node(path: impl AsRef<Path>, offset: u64, len_bytes: u64) -> Option<PathBuf> {
    let Identity::Block { rdev } = Identity::of_path(path.as_ref())? else { return None };
    let partition = block::partition_at(rdev, offset, len_bytes)?;
    Some(block::node_path(partition)).filter(|node| node.exists())
}

/// The identity of a file or device, whatever its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A regular file: `st_dev` and `st_ino`.
    Regular { dev: u64, inode: u64 },
    /// A block device: `st_rdev`, whichever node leads to it.
    Block { rdev: u64 },
}

impl Identity {
    /// `None` for anything except a regular file or a block device.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let file_type = metadata.file_type();
        if file_type.is_file() {
            Some(Self::Regular { dev: metadata.dev(), inode: metadata.ino() })
        } else if file_type.is_block_device() {
            Some(Self::Block { rdev: metadata.rdev() })
        } else {
            None
        }
    }

    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Self::of(&path.metadata().ok()?)
    }
}

/// The mounts that count as a use of their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounts {
    All,
    /// Larder mounts do not count: their server is the caller.
    NotLarders,
}

/// A kernel's use of `identity`.
pub(crate) fn find_use(identity: Identity, mounts: Mounts) -> Option<InUse> {
    find_use_within(identity, mounts, MAX_CHAIN)
}

fn find_use_within(identity: Identity, mounts: Mounts, steps: usize) -> Option<InUse> {
    let attached = loops::attached_to(identity);
    if let Some(by) = direct_use(identity, &attached.stand_ins, mounts) {
        return Some(by);
    }
    let steps = steps.checked_sub(1)?;
    let follow = |link, rdev| {
        let then = find_use_within(Identity::Block { rdev }, mounts, steps).map(Box::new);
        InUse::Linked { link, other: block::node_path(rdev), then }
    };
    if let Some(rdev) = attached.devices.first() {
        return Some(follow(Link::AttachedAs, *rdev));
    }
    let Identity::Block { rdev } = identity else { return None };
    if let Some(holder) = block::holders(rdev).first() {
        return Some(follow(Link::HeldBy, *holder));
    }
    // A partition by itself is no use; one in use is.
    block::partitions(rdev)
        .into_iter()
        .map(|partition| follow(Link::Partition, partition))
        .find(|by| matches!(by, InUse::Linked { then: Some(_), .. }))
}

/// A use without another device: a mount, perhaps through a stand-in, or swap space.
fn direct_use(identity: Identity, stand_ins: &[u64], mounts: Mounts) -> Option<InUse> {
    let stand_ins = stand_ins.iter().map(|rdev| Identity::Block { rdev: *rdev });
    let sources: Vec<Identity> = [identity].into_iter().chain(stand_ins).collect();
    if let Some(at) = mounts::mount_point(&sources, mounts) {
        return Some(InUse::Mounted { at: Some(at) });
    }
    if let Identity::Block { rdev } = identity
        && let Some(members) = block::btrfs_members(rdev)
    {
        return Some(InUse::Mounted { at: mounts::mount_point(&members, Mounts::All) });
    }
    mounts::is_swap(identity).then_some(InUse::Swap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_described_with_their_remedies() {
        let mounted = InUse::Mounted { at: Some("/mnt".into()) };
        let attached = InUse::Linked {
            link: Link::AttachedAs,
            other: "/dev/loop0".into(),
            then: Some(Box::new(mounted)),
        };
        assert_eq!(
            attached.to_string(),
            "attached as /dev/loop0, which is mounted at /mnt; unmount and detach it first"
        );
        let backed = InUse::Linked {
            link: Link::BackedBy,
            other: "disk.img".into(),
            then: Some(Box::new(InUse::Locked)),
        };
        assert_eq!(
            backed.to_string(),
            "backed by disk.img, which is opened for writing by another program; \
             wait for that program to finish"
        );
    }
}
