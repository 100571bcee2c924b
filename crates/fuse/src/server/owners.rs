//! Ids of users and groups: as the mount shows them, and as the file system stores them.
//!
//! # Invariants
//! - The kernel, programs and clients of the channel speak of shown ids ([`ShownId`]), the library
//!   of stored ids, which are plain numbers. This file alone turns one into the other, so that code
//!   which forgets to do so does not compile.
//! - Permissions are decided by shown ids, as the kernel decides them.
//! - A mount may show still other ids in place of those (`MOUNT_ATTR_IDMAP`). The kernel maps them,
//!   except where it leaves permissions to the server: there the ids are those that the caller's
//!   mount shows ([`Owners::through`]).
//! - A stored id that the mount does not show equals the id of no caller. An inode with such an
//!   owner or group is read-only, and root has no privilege there, as in the kernel's own mounts
//!   with other ids.
//! - Nothing is stored for an id of which the map says nothing: `EOVERFLOW`.
//! - An inode that is given the owner that it is shown with keeps the stored one, of which there
//!   may be several.
//! - Streams, and items that a program searches for, have stored ids: they are the file system, not
//!   a view of it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fs;

use larder::Metadata;
use larder_format::xattr_ids::{self, XattrId};
use larder_format::{IdMap, OwnerMap};
use rustix::io::Errno;

use crate::protocol::abi::ShownId;

/// What stat(2) shows in place of an id that does not exist, unless these files say otherwise.
const OVERFLOW_ID: u32 = 65_534;
const OVERFLOW_USER: &str = "/proc/sys/kernel/overflowuid";
const OVERFLOW_GROUP: &str = "/proc/sys/kernel/overflowgid";

/// The ids that a mount shows in place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owners {
    /// From shown ids to stored ones, and back.
    stored: OwnerMap,
    shown: OwnerMap,
    /// From the ids that a mount of the kernel shows to those which it is shown, and back.
    inside: OwnerMap,
    outside: OwnerMap,
    /// The user and the group that programs see in place of none.
    overflow: (u32, u32),
}

impl Owners {
    /// `map` leads from shown ids to stored ones.
    pub(super) fn new(map: OwnerMap) -> Self {
        let overflow = (overflow_id(OVERFLOW_USER), overflow_id(OVERFLOW_GROUP));
        let (inside, outside) = Default::default();
        Self { shown: map.turned(), stored: map, inside, outside, overflow }
    }

    /// The same, as they are seen through a mount. `map` leads from the ids that the mount shows to
    /// those that it is shown.
    pub(super) fn through(&self, map: &OwnerMap) -> Self {
        Self { outside: map.turned(), inside: map.clone(), ..self.clone() }
    }

    /// Whether all ids are shown as they are stored.
    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.inside.is_empty()
    }

    pub(super) fn shown_user(&self, stored: u32) -> Option<ShownId> {
        let shown = self.shown.users.inner_if_any(stored)?;
        self.outside.users.inner_if_any(shown).map(ShownId::new)
    }

    pub(super) fn shown_group(&self, stored: u32) -> Option<ShownId> {
        let shown = self.shown.groups.inner_if_any(stored)?;
        self.outside.groups.inner_if_any(shown).map(ShownId::new)
    }

    pub(super) fn stored_user(&self, shown: ShownId) -> Result<u32, Errno> {
        Self::stored(shown, &self.inside.users, &self.stored.users)
    }

    pub(super) fn stored_group(&self, shown: ShownId) -> Result<u32, Errno> {
        Self::stored(shown, &self.inside.groups, &self.stored.groups)
    }

    fn stored(shown: ShownId, inside: &IdMap, stored: &IdMap) -> Result<u32, Errno> {
        let shown = Some(shown).filter(|id| *id != ShownId::NONE).ok_or(Errno::OVERFLOW)?;
        let inside = inside.inner_if_any(shown.number()).ok_or(Errno::OVERFLOW)?;
        stored.inner_if_any(inside).ok_or(Errno::OVERFLOW)
    }

    /// The user to store for an inode that `before` describes and that is given to `new`.
    pub(super) fn next_user(&self, new: ShownId, before: &Metadata) -> Result<u32, Errno> {
        let stays = self.shown_user(before.uid) == Some(new);
        if stays { Ok(before.uid) } else { self.stored_user(new) }
    }

    /// The same for the group.
    pub(super) fn next_group(&self, new: ShownId, before: &Metadata) -> Result<u32, Errno> {
        let stays = self.shown_group(before.gid) == Some(new);
        if stays { Ok(before.gid) } else { self.stored_group(new) }
    }

    /// Whether owner and group of an inode are shown.
    pub(super) fn has(&self, metadata: &Metadata) -> bool {
        self.shown_user(metadata.uid).is_some() && self.shown_group(metadata.gid).is_some()
    }

    /// Owner and group for the kernel, which shows programs another id in place of none.
    pub(super) fn for_kernel(&self, metadata: &Metadata) -> (ShownId, ShownId) {
        let (user, group) = (self.shown_user(metadata.uid), self.shown_group(metadata.gid));
        (user.unwrap_or(ShownId::NONE), group.unwrap_or(ShownId::NONE))
    }

    /// Owner and group for a program, as stat(2) returns them.
    pub(super) fn for_program(&self, metadata: &Metadata) -> (u32, u32) {
        let (user, group) = (self.shown_user(metadata.uid), self.shown_group(metadata.gid));
        let (no_user, no_group) = self.overflow;
        (user.map_or(no_user, ShownId::number), group.map_or(no_group, ShownId::number))
    }

    /// The value of an extended attribute for the kernel and for programs. The kernel refuses an
    /// ACL with entries for no id, so they are left out.
    pub(super) fn shown_xattr(&self, name: &[u8], value: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return value;
        }
        let shown = xattr_ids::replace(name, &value, |id| {
            let shown = match id {
                XattrId::User(uid) | XattrId::Root(uid) => self.shown_user(uid),
                XattrId::Group(gid) => self.shown_group(gid),
            };
            Ok::<_, Infallible>(shown.map(ShownId::number))
        });
        let Ok(shown) = shown;
        shown
    }

    /// The value to store for one that a program sets. The error is that of a value that names an
    /// id which does not exist.
    pub(super) fn stored_xattr<'v>(
        &self,
        name: &[u8],
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, Errno> {
        if self.is_empty() {
            return Ok(Cow::Borrowed(value));
        }
        let stored = xattr_ids::replace(name, value, |id| {
            let stored = match id {
                XattrId::User(uid) | XattrId::Root(uid) => self.stored_user(ShownId::new(uid)),
                XattrId::Group(gid) => self.stored_group(ShownId::new(gid)),
            };
            stored.map(Some).map_err(|_| Errno::INVAL)
        });
        stored.map(Cow::Owned)
    }
}

fn overflow_id(path: &str) -> u32 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(OVERFLOW_ID)
}
