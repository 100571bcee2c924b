//! Permissions that the kernel leaves to the server: those of ioctls, which it passes on unchecked,
//! of what clients of the channel ask for, and the rights that a file loses when a caller changes it.
//!
//! # Invariants
//! - A caller may more than modes and ACLs allow by a capability, never by being root. Each
//!   privileged operation names the capability that the kernel's btrfs asks for.
//! - An inode whose owner or group is not shown is subject to no capability.

use larder::{ErrorKind, FileType, Inode, Metadata};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::call::{Outcome, failed};
use super::ids::Ids;
use super::owners::Owners;
use super::thread::Thread;
use crate::protocol::abi::ShownId;

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
pub(super) struct Caller<'s> {
    pub(super) ids: &'s Ids<'s>,
    pub(super) thread: &'s Thread<'s>,
    /// Whether the caller may do by ioctls what root may: if this is so, and the thread is in the
    /// user namespace of the server.
    pub(super) runs_server: bool,
    /// As the server shows them.
    pub(super) shown_owners: &'s Owners,
}

/// Whether `uid` is a user other than root who runs the server as `owner`, and so could do anything
/// with the file system without it.
pub(super) fn runs_server(uid: ShownId, owner: ShownId) -> bool {
    uid == owner && owner != ShownId::ROOT
}

/// Whether the control channel serves `uid`: only root and the user who runs the server.
pub(super) fn is_served(uid: ShownId, owner: ShownId) -> bool {
    uid == ShownId::ROOT || uid == owner
}

impl<'s> Caller<'s> {
    /// What lets a caller do everything that root may do with a file system.
    pub(super) const EVERYTHING: CapabilitySet = CapabilitySet::CHOWN
        .union(CapabilitySet::DAC_OVERRIDE)
        .union(CapabilitySet::DAC_READ_SEARCH)
        .union(CapabilitySet::FOWNER)
        .union(CapabilitySet::FSETID)
        .union(CapabilitySet::LINUX_IMMUTABLE)
        .union(CapabilitySet::MKNOD)
        .union(CapabilitySet::SETFCAP)
        .union(CapabilitySet::SYS_ADMIN);

    /// The user and the group to store for a new inode of the caller.
    pub(super) fn stored_ids(&self) -> Result<(u32, u32), Errno> {
        let (owners, user, group) = (self.owners(), self.user(), self.group());
        Ok((owners.stored_user(user)?, owners.stored_group(group)?))
    }

    /// The user, and the group that new inodes get.
    pub(super) fn user(&self) -> ShownId {
        self.ids.seen().user
    }

    pub(super) fn group(&self) -> ShownId {
        self.ids.seen().group
    }

    /// Owners as the caller sees them.
    pub(super) fn owners(&self) -> &'s Owners {
        self.ids.seen().owners.as_deref().unwrap_or(self.shown_owners)
    }

    /// Whether the caller may do what `capability` allows.
    pub(super) fn may(&self, capability: CapabilitySet) -> bool {
        self.runs_server && self.thread.is_in_namespace()
            || self.thread.capabilities().contains(capability)
    }

    /// Whether no permission restricts the caller.
    pub(super) fn may_everything(&self) -> bool {
        self.may(Self::EVERYTHING)
    }

    /// Refuses callers without `capability`.
    pub(super) fn check_may(&self, capability: CapabilitySet) -> Outcome {
        if self.may(capability) { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Refuses callers that do not own `inode`.
    pub(super) fn check_owner(&self, inode: &Inode) -> Outcome {
        let metadata = inode.metadata();
        let may = self.owns(&metadata) || self.may_with(&metadata, CapabilitySet::FOWNER);
        if may { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Refuses what the mode of an inode, or its ACL, does not allow.
    pub(super) fn check_access(&self, inode: &Inode, wanted: u32) -> Outcome {
        let metadata = inode.metadata();
        if self.may_access_any(&metadata, wanted) {
            return Ok(());
        }
        if wanted & WRITE != 0 && !self.owners().has(&metadata) {
            return Err(Errno::ACCESS);
        }
        let acl = match inode.xattr(ACCESS_ACL) {
            Ok(acl) => acl,
            Err(error) if error.kind() == ErrorKind::NoSuchAttribute => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let acl = self.owners().shown_xattr(ACCESS_ACL.as_bytes(), acl);
        let is_allowed =
            Credentials::of(self).may(wanted, &Classes::of(&metadata, self.owners()), &acl);
        if is_allowed { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Refuses to take `child` out of `directory` as the kernel does: from a sticky directory a
    /// caller takes only its own.
    pub(super) fn check_may_remove(&self, directory: &Inode, child: &Inode) -> Outcome {
        self.check_access(directory, WRITE | EXECUTE)?;
        let (metadata, child) = (directory.metadata(), child.metadata());
        if !self.owners().has(&child) {
            return Err(Errno::OVERFLOW);
        }
        let owns = || self.owns(&metadata) || self.owns(&child);
        let stays = metadata.mode & STICKY != 0 && !owns() && !self.may(CapabilitySet::FOWNER);
        if stays { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Takes setuid, setgid and capabilities from a file that the caller changes.
    pub(super) fn drop_privileges(&self, inode: &Inode) -> Outcome {
        let keeps_set_gid = inode.metadata().mode & SET_GID == 0 || self.keeps_set_gid_of(inode);
        inode.drop_privileges(keeps_set_gid).map_err(failed)
    }

    /// Whether a file loses setuid or setgid when the caller changes it.
    pub(super) fn loses_set_id_bits(&self, inode: &Inode) -> bool {
        let has = |bits| inode.metadata().mode & bits == bits;
        has(SET_UID) || has(SET_GID) && (has(RUN_BY_GROUP) || !self.keeps_set_gid_of(inode))
    }

    /// Whether a file may have setgid after the caller changed it.
    pub(super) fn keeps_set_gid_of(&self, inode: &Inode) -> bool {
        let metadata = inode.metadata();
        self.is_in_group(metadata.gid) || self.may_with(&metadata, CapabilitySet::FSETID)
    }

    /// Whether the caller is in a group that is stored.
    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        let Some(group) = self.owners().shown_group(gid) else { return false };
        self.group() == group || self.thread.groups().contains(&group)
    }

    /// Whether the caller is the owner: no capability stands for that.
    pub(super) fn owns(&self, metadata: &Metadata) -> bool {
        self.owners().shown_user(metadata.uid) == Some(self.user())
    }

    /// Whether the caller may do with an inode what `capability` allows.
    pub(super) fn may_with(&self, metadata: &Metadata, capability: CapabilitySet) -> bool {
        self.owners().has(metadata) && self.may(capability)
    }

    /// Whether a capability allows the access, whatever mode and ACL say.
    fn may_access_any(&self, metadata: &Metadata, wanted: u32) -> bool {
        let searches = metadata.file_type == FileType::Directory && wanted & WRITE == 0;
        self.may_with(metadata, CapabilitySet::DAC_OVERRIDE)
            || (searches || wanted == READ)
                && self.may_with(metadata, CapabilitySet::DAC_READ_SEARCH)
    }
}

/// The user and the groups of a caller.
#[derive(Debug)]
struct Credentials {
    uid: ShownId,
    groups: Vec<ShownId>,
}

/// What the mode of an inode is about: its owner and its group, unless they are not shown.
struct Classes {
    mode: u32,
    user: Option<ShownId>,
    group: Option<ShownId>,
}

impl Classes {
    fn of(metadata: &Metadata, owners: &Owners) -> Self {
        let (user, group) = (owners.shown_user(metadata.uid), owners.shown_group(metadata.gid));
        Self { mode: metadata.mode, user, group }
    }
}

impl Credentials {
    fn of(caller: &Caller<'_>) -> Self {
        let mut groups = caller.thread.groups().to_vec();
        groups.push(caller.group());
        Self { uid: caller.user(), groups }
    }

    /// Whether the mode, and `acl` as it is shown unless it is empty, allow all of `wanted`.
    fn may(&self, wanted: u32, classes: &Classes, acl: &[u8]) -> bool {
        let Classes { mode, user, group } = *classes;
        let allows = |permissions: u32| permissions & wanted == wanted;
        let is_member = |group: Option<ShownId>| group.is_some_and(|it| self.groups.contains(&it));
        if user == Some(self.uid) {
            return allows(mode >> 6);
        }
        let entries: Vec<AclEntry> = AclEntry::all(acl).collect();
        let Some(mask) = entries.iter().find(|entry| entry.tag == tag::MASK) else {
            return allows(if is_member(group) { mode >> 3 } else { mode });
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
                tag::GROUP_OBJ => is_member(group),
                tag::GROUP => is_member(Some(entry.id)),
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
    id: ShownId,
}

impl AclEntry {
    fn all(acl: &[u8]) -> impl Iterator<Item = Self> {
        let entries = acl.get(ACL_HEADER_BYTES..).unwrap_or_default();
        entries.chunks_exact(ACL_ENTRY_BYTES).map(Self::of)
    }

    fn of(bytes: &[u8]) -> Self {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let id = u32::from(number(4)) | u32::from(number(6)) << 16;
        Self { tag: number(0), permissions: number(2).into(), id: ShownId::new(id) }
    }
}

#[cfg(test)]
mod tests {
    use larder_testkit::acl;

    use super::*;

    const EVERYTHING: u32 = READ | WRITE | EXECUTE;

    fn caller(uid: u32, groups: &[u32]) -> Credentials {
        let groups = groups.iter().copied().map(ShownId::new).collect();
        Credentials { uid: ShownId::new(uid), groups }
    }

    fn classes(mode: u32) -> Classes {
        Classes { mode, user: Some(ShownId::new(1)), group: Some(ShownId::new(2)) }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let classes = classes(0o075);
        assert!(!caller(1, &[2]).may(READ, &classes, b""), "the owner has nothing");
        assert!(caller(3, &[2]).may(EVERYTHING, &classes, b""));
        assert!(caller(3, &[4]).may(READ | EXECUTE, &classes, b""));
        assert!(!caller(3, &[4]).may(WRITE, &classes, b""));
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
        let (acl, classes) = (acl(&entries), classes(0o760));
        assert!(caller(9, &[]).may(READ | WRITE, &classes, &acl));
        assert!(!caller(9, &[]).may(EXECUTE, &classes, &acl), "the mask");
        assert!(caller(3, &[2]).may(READ, &classes, &acl));
        assert!(caller(3, &[2, 7]).may(WRITE, &classes, &acl));
        assert!(!caller(3, &[2, 7]).may(READ | WRITE, &classes, &acl), "no one entry has both");
        assert!(!caller(3, &[4]).may(READ, &classes, &acl));
        assert!(caller(1, &[]).may(EVERYTHING, &classes, &acl));
    }
}
