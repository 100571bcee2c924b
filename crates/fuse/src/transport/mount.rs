//! Mounting and unmounting: root asks the kernel, others ask `fusermount3`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

use larder_ioctl::channel::descriptor;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::mount::UnmountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::path;
use rustix::process::geteuid;

use super::block;
use super::program::run;
use super::superblock::{Superblock, attributes};
use super::tree::Tree;
use crate::options::{AccessTimes, MountOptions, ServerOptions};
use crate::usage::MountTable;

/// The program that mounts for users other than root.
const FUSERMOUNT: &str = "fusermount3";

/// A new mount.
pub(crate) struct Mounted {
    /// The open `/dev/fuse` of the connection.
    pub(crate) device: OwnedFd,
    /// The source of further mounts, which only root can make.
    pub(crate) superblock: Option<Superblock>,
    pub(crate) sync: SyncCalls,
    /// The number of the file system, as in `st_dev`.
    pub(crate) number: u64,
}

/// Whether sync(2) and syncfs(2) reach the server.
#[derive(Debug)]
pub(crate) enum SyncCalls {
    /// The kernel passes them on: it is a mount of [`block`].
    Reach,
    /// The kernel does not pass them on to such a mount.
    DoNotReach,
    /// They could reach it, but this went wrong.
    Failed(io::Error),
}

/// Mounts at `mountpoint`. The mount table shows which access times the server keeps.
pub(crate) fn mount(
    mountpoint: &Path,
    options: &MountOptions,
    server: &ServerOptions,
) -> io::Result<Mounted> {
    if geteuid().is_root() {
        let (mounted, tree) = mount_in_no_place(options, server)?;
        tree.attach(mountpoint)?;
        Ok(mounted)
    } else {
        let device = mount_as_user(mountpoint, options, server)?;
        let number = number_of(CWD, mountpoint)?;
        Ok(Mounted { device, superblock: None, sync: SyncCalls::DoNotReach, number })
    }
}

/// The same for root, at no place yet. The mount lives no longer than the tree.
pub(crate) fn mount_in_no_place(
    options: &MountOptions,
    server: &ServerOptions,
) -> io::Result<(Mounted, Tree)> {
    // A mount that writes nothing needs no sync.
    let sync = if options.read_only || !block::is_offered() {
        SyncCalls::DoNotReach
    } else {
        let mounted = Superblock::block(options)
            .and_then(|superblock| mount_first(superblock, options, server, SyncCalls::Reach));
        match mounted {
            Ok(mounted) => return Ok(mounted),
            Err(error) => SyncCalls::Failed(error),
        }
    };
    mount_first(Superblock::named(options)?, options, server, sync)
}

fn mount_first(
    superblock: Superblock,
    options: &MountOptions,
    server: &ServerOptions,
    sync: SyncCalls,
) -> io::Result<(Mounted, Tree)> {
    let tree = superblock.tree(options.read_only, attributes(options, server))?;
    let (device, number) = (superblock.device()?, number_of(&tree, "")?);
    Ok((Mounted { device, superblock: Some(superblock), sync, number }, tree))
}

/// The number of the file system that is mounted at `path`. This sends no request to its server.
fn number_of(directory: impl AsFd, path: impl path::Arg) -> io::Result<u64> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let found = statx(directory, path, flags, StatxFlags::empty())?;
    Ok(makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// Unmounts the file system at `mountpoint`. If `lazily`, it disappears at once, and processes that
/// use it go on. The process that serves it calls [`Mount::unmount`](crate::Mount::unmount)
/// instead.
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    if geteuid().is_root() {
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(mountpoint, flags)?);
    }
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint);
    run(&mut command)
}

/// Unmounts the file system with this number, which this process serves, from all places that it
/// sees, and keeps serving meanwhile.
pub(crate) fn unmount_own(number: u64, lazily: bool, sync: &SyncCalls) -> io::Result<()> {
    let table = MountTable::of_this_process()?;
    // The last mount may lie on the others.
    for mount in table.of_device(number).collect::<Vec<_>>().into_iter().rev() {
        match sync {
            SyncCalls::Reach => block::unmount(&mount.path, lazily),
            SyncCalls::DoNotReach | SyncCalls::Failed(_) => unmount(&mount.path, lazily),
        }?;
    }
    Ok(())
}

/// Ends the connection of the mount at `mountpoint`, and unmounts it unless it is in use: programs
/// that wait for the server get an error. This helps after a server was killed while it told the
/// kernel to forget data of a file: the kernel waits for the dead server to take the data.
///
/// # Errors
/// `EBUSY` if it is still mounted, `EPERM` for users other than root.
pub fn end(mountpoint: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(mountpoint, UnmountFlags::FORCE)?)
}

fn mount_as_user(
    mountpoint: &Path,
    options: &MountOptions,
    server: &ServerOptions,
) -> io::Result<OwnedFd> {
    if options.nosymfollow || !options.labels.is_empty() {
        let message = "only root can mount with nosymfollow, or with labels of SELinux";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut list = b"default_permissions,subtype=larder".to_vec();
    let flags = [
        (options.read_only, ",ro"),
        (options.noexec, ",noexec"),
        (server.nodiratime, ",nodiratime"),
        (server.access_times == AccessTimes::Never, ",noatime"),
        (options.allow_other, ",allow_other"),
    ];
    list.extend(flags.iter().filter(|(is_set, _)| *is_set).flat_map(|(_, name)| name.bytes()));
    list.extend(b",fsname=");
    for byte in options.source.as_bytes() {
        // A comma would begin another option.
        list.extend(matches!(byte, b'\\' | b',').then_some(b'\\'));
        list.push(*byte);
    }
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-o").arg(OsString::from_vec(list)).arg("--").arg(mountpoint);
    // It sends the descriptor through its standard input, which needs no inherited number.
    command.stdin(Stdio::from(theirs)).env("_FUSE_COMMFD", "0");
    run(&mut command)?;
    // This closes its end of the socket: if it sent nothing, the stream ends.
    drop(command);
    let device = descriptor::receive(&ours)?;
    device.ok_or_else(|| io::Error::other(format!("{FUSERMOUNT} sent no descriptor")))
}
