//! Mounts as callers see them: whether an ioctl came through one that it may change.
//!
//! # Invariants
//! - The kernel asks a mount before a file system changes, except for ioctls of FUSE: they come
//!   through a read-only bind mount like any other. The server asks in its place.
//! - A caller may change what it has open through a writable mount. Which of its descriptors a
//!   request came through is not known, and does not matter: it has the other one too.
//! - Where nothing can be read, nothing may be changed.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::Errno;

use super::call::{Call, Outcome};
use super::state::Server;
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
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(info: &str) -> Option<Self> {
        let number =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        Some(Self { mount: number("mnt_id:")?, inode: number("ino:") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read() {
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t256\n";
        assert_eq!(Descriptor::parse(info), Some(Descriptor { mount: 29, inode: Some(256) }));
        let old = "pos:\t0\nmnt_id:\t29\n";
        assert_eq!(Descriptor::parse(old), Some(Descriptor { mount: 29, inode: None }));
        assert_eq!(Descriptor::parse("pos:\t0\n"), None);
    }
}
