//! Finding subvolumes of a mounted file system.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;

use larder_device::KernelMount;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat2, statx};

use super::paths::DOWN;
use crate::receive::error::CommandProblem;
use crate::receive::target::{Candidate, Origin, choose};

/// The root of the subvolume that a stream names, in the file system of `inside`.
pub(super) fn find(inside: &OwnedFd, wanted: Origin) -> Result<OwnedFd, CommandProblem> {
    if wanted.uuid.is_nil() {
        return Err(CommandProblem::NotReceived { uuid: wanted.uuid });
    }
    let mount = Mount::of(inside)?;
    let mut candidates = Vec::new();
    for id in larder_ioctl::subvolumes_of(inside, wanted.uuid)? {
        let Some(path) = larder_ioctl::subvolume_path(inside, id)? else { continue };
        let Some(root) = mount.open(&path)? else { continue };
        let info = larder_ioctl::subvolume_info(&root)?;
        // Another file system may be mounted over it.
        if info.id != id {
            continue;
        }
        let received = Origin { uuid: info.received_uuid, ctransid: info.stransid };
        let candidate = Candidate {
            own: Origin { uuid: info.uuid, ctransid: info.ctransid },
            received: (!received.uuid.is_nil()).then_some(received),
            is_read_only: info.is_read_only,
        };
        candidates.push((candidate, root));
    }
    choose(candidates, wanted)
}

/// The mount of a descriptor.
struct Mount {
    /// The path that it shows, from the top level.
    root: Vec<u8>,
    point: OwnedFd,
}

impl Mount {
    fn of(inside: &OwnedFd) -> io::Result<Self> {
        let stat = statx(inside, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        let mut mounts = KernelMount::of_this_process()?.into_iter();
        let mount = mounts.find(|mount| mount.id == stat.stx_mnt_id);
        let KernelMount { root, path, .. } =
            mount.ok_or(io::Error::other("the mount is missing in /proc/self/mountinfo"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let point = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { root: root.into_os_string().into_vec(), point })
    }

    /// Opens the directory at `path` from the top level, if the mount shows it.
    fn open(&self, path: &[u8]) -> io::Result<Option<OwnedFd>> {
        let whole = [b"/", path].concat();
        let root = self.root.strip_suffix(b"/").unwrap_or(&self.root);
        let Some(below) = whole.strip_prefix(root) else { return Ok(None) };
        let below = match below {
            b"" => b".",
            [b'/', rest @ ..] if !rest.is_empty() => rest,
            b"/" => b".",
            _ => return Ok(None),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Some(openat2(&self.point, below, flags, Mode::empty(), DOWN)?))
    }
}
