//! Permissions that the kernel leaves to the server: those of ioctls, which it passes on unchecked,
//! and the rights that a file loses when a caller changes it.

use std::fs;

use larder::{ErrorKind, Inode, Metadata};
use rustix::io::Errno;

use super::call::{Outcome, failed};

/// The bits of a permission, in the place of those for others in a mode.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

const STICKY: u32 = 0o1000;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const RUN_BY_GROUP: u32 = 0o0010;
const ACCESS_ACL: &str = "system.posix_acl_access";
/// Bytes of the version at the beginning of an ACL, and of each of its entries.
const ACL_HEADER_BYTES: usize = 4;
const ACL_ENTRY_BYTES: usize = 8;

/// `ACL_*`: to whom an entry of an ACL applies.
mod tag {
    pub(super) const USER: u16 = 2;
    pub(super) const GROUP_OBJ: u16 = 4;
    pub(super) const GROUP: u16 = 8;
    pub(super) const MASK: u16 = 16;
}

/// The user and the thread that make a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The calling thread.
    pub(super) pid: u32,
    /// Whether the caller may do everything.
    pub(super) is_privileged: bool,
}

/// Whether a user may do everything: root, and the `owner`, who runs the server.
pub(super) fn is_privileged(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}

impl Caller {
    /// Refuses all callers except root and the user who runs the server.
    pub(super) fn check_privileged(&self) -> Outcome {
        if self.is_privileged { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Refuses callers that do not own `inode`.
    pub(super) fn check_owner(&self, inode: &Inode) -> Outcome {
        let is_owner = inode.metadata().uid == self.uid;
        if is_owner || self.is_privileged { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Refuses what the mode of an inode, or its ACL, does not allow.
    pub(super) fn check_access(&self, inode: &Inode, wanted: u32) -> Outcome {
        if self.is_privileged {
            return Ok(());
        }
        let metadata = inode.metadata();
        let acl = match inode.xattr(ACCESS_ACL) {
            Ok(acl) => acl,
            Err(error) if error.kind() == ErrorKind::NoSuchAttribute => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let is_allowed = Credentials::of(self).may(wanted, &metadata, &acl);
        if is_allowed { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Refuses to take `child` out of `directory` as the kernel does: from a sticky directory a
    /// caller takes only its own.
    pub(super) fn check_may_remove(&self, directory: &Inode, child: &Inode) -> Outcome {
        self.check_access(directory, WRITE | EXECUTE)?;
        let metadata = directory.metadata();
        let owns = metadata.uid == self.uid || child.metadata().uid == self.uid;
        let stays = metadata.mode & STICKY != 0 && !owns && !self.is_privileged;
        if stays { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Takes setuid, setgid and capabilities from a file that the caller changes.
    pub(super) fn drop_privileges(&self, inode: &Inode) -> Outcome {
        inode.drop_privileges(self.is_in_group_of(inode)).map_err(failed)
    }

    /// Whether a file loses setuid or setgid when the caller changes it.
    pub(super) fn loses_set_id_bits(&self, inode: &Inode) -> bool {
        let has = |bits| inode.metadata().mode & bits == bits;
        has(SET_UID) || has(SET_GID) && (has(RUN_BY_GROUP) || !self.is_in_group_of(inode))
    }

    /// Whether the caller is in the group of a file, or root.
    pub(super) fn is_in_group_of(&self, inode: &Inode) -> bool {
        self.is_in_group(inode.metadata().gid)
    }

    /// Whether the caller is in a group, or root.
    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        self.uid == 0 || Credentials::of(self).groups.contains(&gid)
    }
}

/// The user and the groups of a caller.
#[derive(Debug)]
struct Credentials {
    uid: u32,
    groups: Vec<u32>,
}

impl Credentials {
    fn of(caller: &Caller) -> Self {
        let mut groups = supplementary_groups(caller.pid).unwrap_or_default();
        groups.push(caller.gid);
        Self { uid: caller.uid, groups }
    }

    /// Whether the mode in `metadata`, and `acl` unless it is empty, allow all of `wanted`.
    fn may(&self, wanted: u32, metadata: &Metadata, acl: &[u8]) -> bool {
        let Metadata { mode, uid, gid, .. } = *metadata;
        let allows = |permissions: u32| permissions & wanted == wanted;
        let is_member = |gid: u32| self.groups.contains(&gid);
        if self.uid == uid {
            return allows(mode >> 6);
        }
        let entries: Vec<AclEntry> = AclEntry::all(acl).collect();
        let Some(mask) = entries.iter().find(|entry| entry.tag == tag::MASK) else {
            return allows(if is_member(gid) { mode >> 3 } else { mode });
        };
        let allow = |entry: &AclEntry| allows(entry.permissions & mask.permissions);
        if let Some(named) =
            entries.iter().find(|entry| (entry.tag, entry.id) == (tag::USER, self.uid))
        {
            return allow(named);
        }
        let mut of_groups = entries
            .iter()
            .filter(|entry| match entry.tag {
                tag::GROUP_OBJ => is_member(gid),
                tag::GROUP => is_member(entry.id),
                _ => false,
            })
            .peekable();
        if of_groups.peek().is_none() { allows(mode) } else { of_groups.any(allow) }
    }
}

/// An entry of an ACL as in the attribute (`struct posix_acl_xattr_entry`).
struct AclEntry {
    tag: u16,
    permissions: u32,
    id: u32,
}

impl AclEntry {
    fn all(acl: &[u8]) -> impl Iterator<Item = Self> {
        let entries = acl.get(ACL_HEADER_BYTES..).unwrap_or_default();
        entries.chunks_exact(ACL_ENTRY_BYTES).map(Self::of)
    }

    fn of(bytes: &[u8]) -> Self {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let id = u32::from(number(4)) | u32::from(number(6)) << 16;
        Self { tag: number(0), permissions: number(2).into(), id }
    }
}

/// The supplementary groups of a thread, as `/proc` shows them. `None` if it has ended.
fn supplementary_groups(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use larder_testkit::acl;

    use super::*;

    const EVERYTHING: u32 = READ | WRITE | EXECUTE;

    fn caller(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, groups: groups.to_vec() }
    }

    fn metadata(mode: u32) -> Metadata {
        let fs = crate::server::hostile::filesystem();
        let mut metadata = fs.subvolume("/").and_then(|top| top.metadata("/")).expect("a root");
        (metadata.mode, metadata.uid, metadata.gid) = (mode, 1, 2);
        metadata
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let metadata = metadata(0o075);
        assert!(!caller(1, &[2]).may(READ, &metadata, b""), "the owner has nothing");
        assert!(caller(3, &[2]).may(EVERYTHING, &metadata, b""));
        assert!(caller(3, &[4]).may(READ | EXECUTE, &metadata, b""));
        assert!(!caller(3, &[4]).may(WRITE, &metadata, b""));
    }

    #[test]
    fn an_acl_names_users_and_groups_within_its_mask() {
        // user::rwx user:9:rwx group::r-- group:7:-w- mask::rw- other::---
        let entries = [
            (1, 7, !0),
            (tag::USER, 7, 9),
            (tag::GROUP_OBJ, 4, !0),
            (tag::GROUP, 2, 7),
            (tag::MASK, 6, !0),
            (32, 0, !0),
        ];
        let (acl, metadata) = (acl(&entries), metadata(0o760));
        assert!(caller(9, &[]).may(READ | WRITE, &metadata, &acl));
        assert!(!caller(9, &[]).may(EXECUTE, &metadata, &acl), "the mask");
        assert!(caller(3, &[2]).may(READ, &metadata, &acl));
        assert!(caller(3, &[2, 7]).may(WRITE, &metadata, &acl));
        assert!(!caller(3, &[2, 7]).may(READ | WRITE, &metadata, &acl), "no one entry has both");
        assert!(!caller(3, &[4]).may(READ, &metadata, &acl));
        assert!(caller(1, &[]).may(EVERYTHING, &metadata, &acl));
    }
}
