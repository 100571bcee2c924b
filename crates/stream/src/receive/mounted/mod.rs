//! Receiving into a directory of a mounted file system: the kernel's btrfs, or a server that
//! answers its requests.
//!
//! The kernel walks every path from the root of the subvolume, and refuses symbolic links, `..` and
//! other mounts on the way.

mod data;
mod parents;
mod paths;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use larder_filesystem::FileType;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    linkat, mkdirat, mknodat, openat, removexattr, renameat, setxattr, symlinkat, syncfs, unlinkat,
    utimensat,
};

use self::paths::{Paths, link_of};
use super::error::{CommandError, CommandProblem};
use super::node::MadeNode;
use super::target::{Base, Origin, Target};
use crate::wire::{Command, Timestamp};

/// A directory of a mounted file system, to receive subvolumes in. Most of its requests need root.
#[derive(Debug)]
pub struct MountedTarget {
    directory: OwnedFd,
    current: Option<Receiving>,
}

impl MountedTarget {
    /// Receives in the directory at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { directory, current: None })
    }

    fn open_root(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, name, flags, Mode::empty())?)
    }
}

impl Target for MountedTarget {
    fn begin(&mut self, name: &[u8], sent: Origin, base: Base<'_>) -> Result<(), CommandProblem> {
        self.current = None;
        let snapshot = |of| larder_ioctl::create_snapshot(&self.directory, of, name, false);
        match base {
            Base::Empty => larder_ioctl::create_subvolume(&self.directory, name)?,
            Base::Parent(parent) => snapshot(parents::find(&self.directory, parent)?)?,
            Base::Checkpoint(name) => snapshot(self.open_root(name.as_bytes())?)?,
        }
        let root = self.open_root(name)?;
        let (paths, sources) = (Paths::new(root)?, HashMap::new());
        self.current = Some(Receiving { paths, sent, sources });
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        let failed = |problem| CommandError::of(command, problem);
        let current = self.current.as_mut().ok_or(CommandProblem::NoSubvolume).map_err(failed)?;
        current.apply(command).map_err(failed)
    }

    fn apply_deferred(&mut self) -> Result<(), CommandError> {
        Ok(())
    }

    fn take_checkpoint(&mut self, name: &str) -> Result<(), CommandProblem> {
        let current = self.current.as_ref().ok_or(CommandProblem::NoSubvolume)?;
        let (directory, root) = (&self.directory, current.paths.root());
        Ok(larder_ioctl::create_snapshot(directory, root, name.as_bytes(), true)?)
    }

    fn finish(&mut self) -> Result<(), CommandProblem> {
        let Receiving { paths, sent, .. } =
            self.current.take().ok_or(CommandProblem::NoSubvolume)?;
        // No file in it is open for writing any more.
        let root = paths.into_root();
        larder_ioctl::set_received(&root, sent.uuid, sent.ctransid)?;
        larder_ioctl::set_read_only(&root, true)?;
        Ok(syncfs(&root).map_err(io::Error::from)?)
    }
}

/// A subvolume that is being received.
#[derive(Debug)]
struct Receiving {
    paths: Paths,
    sent: Origin,
    /// The roots of subvolumes that were cloned from.
    sources: HashMap<Origin, Paths>,
}

impl Receiving {
    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandProblem> {
        if let Some(made) = MadeNode::of(command)? {
            return Ok(self.make(&made)?);
        }
        match *command {
            Command::EnableVerity { .. } => Err(CommandProblem::Unsupported("verity")),
            Command::Rename { .. }
            | Command::Link { .. }
            | Command::Unlink { .. }
            | Command::Rmdir { .. } => Ok(self.change_names(command)?),
            Command::SetXattr { .. }
            | Command::RemoveXattr { .. }
            | Command::Chmod { .. }
            | Command::Chown { .. }
            | Command::Utimes { .. } => Ok(self.change_attributes(command)?),
            // See the target in an image.
            Command::Fileattr { .. } => Ok(()),
            _ => self.change_data(command),
        }
    }

    fn make(&mut self, made: &MadeNode<'_>) -> io::Result<()> {
        let (directory, name) = self.paths.parent_and_name(made.path)?;
        let mode = Mode::from_raw_mode(made.permissions);
        let node = |file_type| {
            let device = rustix::fs::makedev(made.device.0, made.device.1);
            mknodat(&directory, name, file_type, mode, device)
        };
        match made.file_type {
            FileType::Regular => {
                let flags = OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::RDWR
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = openat(&directory, name, flags, mode)?;
                self.paths.note_file(made.path, File::from(file));
            }
            FileType::Directory => mkdirat(&directory, name, mode)?,
            FileType::Symlink => symlinkat(made.target, &directory, name)?,
            FileType::BlockDevice => node(rustix::fs::FileType::BlockDevice)?,
            FileType::CharDevice => node(rustix::fs::FileType::CharacterDevice)?,
            FileType::Fifo => node(rustix::fs::FileType::Fifo)?,
            FileType::Socket => node(rustix::fs::FileType::Socket)?,
        }
        Ok(())
    }

    fn change_names(&mut self, command: &Command<'_>) -> io::Result<()> {
        match *command {
            Command::Rename { path, to } => {
                let (from, name) = self.paths.parent_and_name(path)?;
                let (directory, new_name) = self.paths.parent_and_name(to)?;
                self.paths.forget();
                renameat(from, name, directory, new_name)?;
            }
            Command::Link { path, existing } => {
                let (from, name) = self.paths.parent_and_name(existing)?;
                let (directory, new_name) = self.paths.parent_and_name(path)?;
                linkat(from, name, directory, new_name, AtFlags::empty())?;
            }
            Command::Unlink { path } => {
                let (directory, name) = self.paths.parent_and_name(path)?;
                self.paths.forget();
                unlinkat(directory, name, AtFlags::empty())?;
            }
            Command::Rmdir { path } => {
                let (directory, name) = self.paths.parent_and_name(path)?;
                self.paths.forget();
                unlinkat(directory, name, AtFlags::REMOVEDIR)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn change_attributes(&mut self, command: &Command<'_>) -> io::Result<()> {
        let Some(path) = command.path() else { return Ok(()) };
        let node = self.paths.node(path)?;
        match *command {
            Command::SetXattr { name, data, .. } => {
                setxattr(link_of(&node), name, data, XattrFlags::empty())?;
            }
            Command::RemoveXattr { name, .. } => removexattr(link_of(&node), name)?,
            Command::Chmod { mode, .. } => {
                let mode = Mode::from_raw_mode(mode as u32 & 0o7777);
                chmodat(CWD, link_of(&node), mode, AtFlags::empty())?;
            }
            Command::Chown { uid, gid, .. } => {
                let owner = Some(Uid::from_raw(uid as u32));
                let group = Some(Gid::from_raw(gid as u32));
                chownat(&node, "", owner, group, AtFlags::EMPTY_PATH)?;
            }
            Command::Utimes { atime, mtime, .. } => {
                let times =
                    Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
                utimensat(&node, "", &times, AtFlags::EMPTY_PATH)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn timespec(time: Timestamp) -> Timespec {
    // The kernel refuses more than a second, except for two special values.
    let tv_nsec = if time.nanoseconds < 1_000_000_000 { time.nanoseconds } else { u32::MAX };
    Timespec { tv_sec: time.seconds, tv_nsec: tv_nsec.into() }
}
