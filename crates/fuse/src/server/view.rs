//! Mounts as callers see them: whether an ioctl came through one that it may change.
//!
//! # Invariants
//! - The kernel asks a mount before a file system changes, except for ioctls of FUSE: they come
//!   through a read-only bind mount like any other. The server asks in its place.
//! - A caller may change what it has open through a writable mount. Which of its descriptors a
//!   request came through is not known, and does not matter: it has the other one too.
//! - Where nothing can be read, nothing may be changed.
//! - For a caller that has an inode open through mounts which show different ids, no ids are right.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use larder_format::OwnerMap;
use rustix::io::Errno;

use super::call::{Call, Outcome};
use super::state::Server;
use crate::transport::id_maps::Opened;
use crate::usage::{MountEntry, MountTable};

/// The most descriptors of a caller that are looked at.
const MOST_DESCRIPTORS: usize = 64 << 10;

/// The mounts of a file system that is served. It outlasts an exchange of servers.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// The number of the file system, as in `st_dev`.
    number: OnceLock<u64>,
}

/// A descriptor, as `/proc` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    fd: u32,
    mount: u64,
    /// The number of its inode. Linux shows it since 5.14.
    inode: Option<u64>,
}

impl Views {
    /// Sets the number of the file system, once it is mounted.
    pub(super) fn set_number(&self, number: u64) {
        // It is mounted once.
        let _ = self.number.set(number);
    }
}

impl Server {
    /// Refuses to change what the caller reaches through a read-only mount only.
    pub(super) fn check_writable_view(&self, call: &Call<'_>) -> Outcome {
        let node = self.node(call)?;
        let number = self.views.number.get().ok_or(Errno::ROFS)?;
        let pid = call.caller.thread.pid;
        let table = if pid == 0 { MountTable::default() } else { MountTable::of_process(pid) };
        let is_writable = match descriptors(pid) {
            Some(mut descriptors) => {
                // A descriptor may have come from another mount namespace.
                let own = MountTable::of_this_process().unwrap_or_default();
                let mounts = || table.of_device(*number).chain(own.of_device(*number));
                descriptors.any(|descriptor| {
                    descriptor.inode.is_none_or(|inode| inode == node.number())
                        && mounts().any(|it| it.id == descriptor.mount && !is_read_only(it))
                })
            }
            // The descriptors of another user's process: its mounts have to do.
            None => {
                let mut mounts = table.of_device(*number).peekable();
                mounts.peek().is_some() && !mounts.any(is_read_only)
            }
        };
        if is_writable && call.kernel.caller_waits() { Ok(()) } else { Err(Errno::ROFS) }
    }
}

impl Server {
    /// From the ids that the caller's mount shows to those that the server shows. The mount is that
    /// of a descriptor of the thread `pid` for `node`; for a request that names the inode by a path,
    /// no mount of the thread's namespace may show other ids.
    pub(super) fn owner_map_of_view(
        &self,
        node: u64,
        pid: u32,
        is_by_descriptor: bool,
    ) -> Option<OwnerMap> {
        let (node, number) = (self.nodes.get(node).ok()?, *self.views.number.get()?);
        let is_it = |opened: &Opened| (opened.device, opened.inode) == (number, node.number());
        let mut found: Option<OwnerMap> = None;
        for descriptor in descriptors(pid)? {
            if descriptor.inode != Some(node.number()) {
                continue;
            }
            let Some(opened) = Opened::of(pid, descriptor.fd).ok().filter(is_it) else { continue };
            let map = opened.owner_map(pid).ok()?;
            if found.as_ref().is_some_and(|other| *other != map) {
                return None;
            }
            found = Some(map);
        }
        let by_path = || {
            let table = MountTable::of_process(pid);
            let mut mounts = table.of_device(number).peekable();
            let are_plain = mounts.peek().is_some() && !mounts.any(shows_other_ids);
            are_plain.then(OwnerMap::default)
        };
        found.or_else(|| if is_by_descriptor { None } else { by_path() })
    }
}

fn shows_other_ids(mount: &MountEntry) -> bool {
    mount.options.split(',').any(|word| word == "idmapped")
}

fn is_read_only(mount: &MountEntry) -> bool {
    mount.options.split(',').any(|word| word == "ro") || mount.has_read_only_superblock()
}

/// The open descriptors of the thread `pid`; `None` if the server may not see them.
fn descriptors(pid: u32) -> Option<impl Iterator<Item = Descriptor>> {
    let all = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let mut all = all.flatten().take(MOST_DESCRIPTORS).peekable();
    all.peek()?;
    Some(all.filter_map(|entry| Descriptor::read(&entry.path())))
}

impl Descriptor {
    fn read(path: &Path) -> Option<Self> {
        let fd = path.file_name()?.to_str()?.parse().ok()?;
        Self::parse(fd, &fs::read_to_string(path).ok()?)
    }

    fn parse(fd: u32, info: &str) -> Option<Self> {
        let number =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        Some(Self { fd, mount: number("mnt_id:")?, inode: number("ino:") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read() {
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t256\n";
        assert_eq!(
            Descriptor::parse(3, info),
            Some(Descriptor { fd: 3, mount: 29, inode: Some(256) })
        );
        let old = "pos:\t0\nmnt_id:\t29\n";
        assert_eq!(Descriptor::parse(3, old), Some(Descriptor { fd: 3, mount: 29, inode: None }));
        assert_eq!(Descriptor::parse(3, "pos:\t0\n"), None);
    }
}
