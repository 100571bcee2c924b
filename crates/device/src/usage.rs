//! The other users of a file or a block device, and where they use it.
//!
//! # Invariants
//! - Nothing here changes, locks or claims a device for longer than the call.
//! - Uses that cannot be seen (in another mount namespace, or through unreadable files of `/sys`)
//!   count as none: the guard is the exclusive claim of [`FileDevice`](crate::FileDevice). This
//!   module explains it, and for attached files it is the guard too.
//! - Chains of users are followed for a bounded number of steps.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::lock;
use crate::system::{Identity, find_use};

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

    /// Whether a program may be writing to it now: it is mounted, or open as by its only writer.
    pub fn may_change(&self) -> bool {
        match self.innermost() {
            Self::Mounted { .. } | Self::Locked => true,
            Self::Swap | Self::Linked { .. } => false,
        }
    }

    /// Where it is mounted, itself or through others.
    pub fn mounted_at(&self) -> Option<&Path> {
        match self.innermost() {
            Self::Mounted { at } => at.as_deref(),
            _ => None,
        }
    }

    /// Whether the user has all of it: not only a partition, or a part of a device that is made from
    /// it.
    pub fn is_of_whole(&self) -> bool {
        match self {
            Self::Linked { link: Link::Partition | Link::HeldBy, .. } => false,
            Self::Linked { then: Some(then), .. } => then.is_of_whole(),
            _ => true,
        }
    }

    fn innermost(&self) -> &Self {
        match self {
            Self::Linked { then: Some(then), .. } => then.innermost(),
            _ => self,
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

/// The mounts that count as a use of their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounts {
    All,
    /// Larder mounts do not count: their server is the caller.
    NotLarders,
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
        assert!(attached.may_change() && attached.is_of_whole());
        assert_eq!(attached.mounted_at(), Some(Path::new("/mnt")));
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
