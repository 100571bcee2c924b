//! Mounting and unmounting: root asks the kernel, others ask `fusermount3`.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};

use super::block;
use crate::{AccessTimes, MountOptions, ServerOptions};

/// What the kernel shows as the type of the file system where it is not [`block::TYPE`].
pub(crate) const TYPE: &str = "fuse.larder";
/// The program that lets those mount who are not root.
const FUSERMOUNT: &str = "fusermount3";

/// What came of mounting.
pub(crate) struct Mounted {
    /// The open `/dev/fuse` of the connection.
    pub(crate) device: OwnedFd,
    pub(crate) sync: SyncCalls,
}

/// Whether sync(2) and syncfs(2) reach the server.
#[derive(Debug)]
pub(crate) enum SyncCalls {
    /// The kernel passes them on: it is a mount of [`block`].
    Reach,
    /// The kernel passes them on to no such mount.
    DoNotReach,
    /// They could reach it, had not this gone wrong.
    Failed(io::Error),
}

/// Mounts at `mountpoint`. The table of mounts says which times of last access the server keeps.
pub(crate) fn mount(
    mountpoint: &Path,
    options: &MountOptions,
    server: ServerOptions,
) -> io::Result<Mounted> {
    if geteuid().is_root() {
        mount_as_root(mountpoint, options, server)
    } else {
        let device = mount_as_user(mountpoint, options, server)?;
        Ok(Mounted { device, sync: SyncCalls::DoNotReach })
    }
}

/// Unmounts what is mounted at `mountpoint`; if `lazily`, at once for everybody who does not use it
/// yet, and for the others when they are done. The process that serves it calls
/// [`Mount::unmount`](crate::Mount::unmount).
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    if geteuid().is_root() {
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(mountpoint, flags)?);
    }
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint);
    run(&mut command)
}

/// Unmounts what this process serves, and goes on serving meanwhile.
pub(crate) fn unmount_own(mountpoint: &Path, lazily: bool, sync: &SyncCalls) -> io::Result<()> {
    match sync {
        SyncCalls::Reach => block::unmount(mountpoint, lazily),
        SyncCalls::DoNotReach | SyncCalls::Failed(_) => unmount(mountpoint, lazily),
    }
}

/// Ends the connection of what is mounted at `mountpoint`, and unmounts it unless somebody still uses it: whoever waits
/// for the server gets an error. A server that was killed while it told the kernel to forget data of a file may
/// need that, for the kernel then waits for it to take the data, and keeps it until it has.
///
/// # Errors
/// `EBUSY` if it is still mounted, `EPERM` for all but root.
pub fn end(mountpoint: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(mountpoint, UnmountFlags::FORCE)?)
}

fn mount_as_root(
    mountpoint: &Path,
    options: &MountOptions,
    server: ServerOptions,
) -> io::Result<Mounted> {
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (fd, uid, gid) = (device.as_raw_fd(), geteuid().as_raw(), getegid().as_raw());
    let mut data =
        format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.nosuid);
    flags.set(MountFlags::NODEV, options.nodev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::NODIRATIME, server.nodiratime);
    flags |= match server.access_times {
        AccessTimes::Never => MountFlags::NOATIME,
        AccessTimes::Relative => MountFlags::RELATIME,
        AccessTimes::Always => MountFlags::STRICTATIME,
    };
    // Where nothing is written nothing has to be synced.
    let sync = if options.read_only || !block::is_offered() {
        SyncCalls::DoNotReach
    } else {
        match block::mount(Path::new(&options.source), mountpoint, flags, &data) {
            Ok(()) => return Ok(Mounted { device, sync: SyncCalls::Reach }),
            Err(error) => SyncCalls::Failed(error),
        }
    };
    let data = CString::new(data)?;
    rustix::mount::mount(&*options.source, mountpoint, TYPE, flags, Some(&*data))?;
    Ok(Mounted { device, sync })
}

fn mount_as_user(
    mountpoint: &Path,
    options: &MountOptions,
    server: ServerOptions,
) -> io::Result<OwnedFd> {
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
    // What it was given goes with it: if it sent nothing, that is the end of the stream.
    drop(command);
    receive_descriptor(&ours)
}

/// Runs a program, of which what it says is the error.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let output =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).output().map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("{program} cannot be run: {error}"))
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::Error::other(format!("{FUSERMOUNT} sent no descriptor")))
}
