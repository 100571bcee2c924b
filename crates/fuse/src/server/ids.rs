//! The user and the group of a caller, and the owners that the caller sees: the mount that the
//! caller uses may show other ids than the server shows to the kernel (`MOUNT_ATTR_IDMAP`).
//!
//! # Invariants
//! - If mounts may show other ids, the kernel names the user and the group only in requests that
//!   create an inode, as the server knows them. In all others `/proc` names them, as programs know
//!   them; then owners are those that the mount shows.
//! - An ioctl comes through a mount that the caller has the inode open through. If there are several
//!   that show different ids, or none, the caller is nobody: owns nothing, and has no capability
//!   where an inode counts.
//! - Other requests may name an inode by a path. Then they come through some mount of the caller's
//!   namespace; if one of these maps ids, the caller is nobody. The kernel has checked permissions:
//!   a file loses setgid, at worst.

use std::sync::OnceLock;

use larder_format::OwnerMap;

use super::owners::Owners;
use super::state::Server;
use super::thread::Thread;
use crate::protocol::Request;
use crate::protocol::abi::{InHeader, ShownId, opcode};

/// The ids of a caller.
#[derive(Debug)]
pub(super) enum Ids<'s> {
    Known(Seen),
    /// They are looked for once they are needed.
    Sought(Source<'s>, OnceLock<Seen>),
}

/// Where the ids of a caller can be found.
#[derive(Debug)]
pub(super) struct Source<'s> {
    server: &'s Server,
    thread: &'s Thread<'s>,
    node: u64,
    is_ioctl: bool,
}

/// What is known of a caller.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) user: ShownId,
    pub(super) group: ShownId,
    /// Owners as the caller sees them, if not as the server shows them.
    pub(super) owners: Option<Box<Owners>>,
}

impl<'s> Ids<'s> {
    /// Those of the caller of `request`, which `thread` makes.
    pub(super) fn of(request: &Request<'_>, server: &'s Server, thread: &'s Thread<'s>) -> Self {
        let InHeader { uid: user, gid: group, nodeid: node, .. } = *request.header();
        if user != ShownId::NONE && group != ShownId::NONE {
            return Self::Known(Seen { user, group, owners: None });
        }
        let is_ioctl = request.opcode() == opcode::IOCTL;
        Self::Sought(Source { server, thread, node, is_ioctl }, OnceLock::new())
    }

    /// The same, for use after the reply.
    pub(super) fn as_they_are(&self) -> Ids<'static> {
        Ids::Known(self.seen().clone())
    }

    pub(super) fn seen(&self) -> &Seen {
        match self {
            Self::Known(seen) => seen,
            Self::Sought(source, seen) => seen.get_or_init(|| source.look()),
        }
    }
}

impl Source<'_> {
    fn look(&self) -> Seen {
        let found = self.find().filter(|_| self.thread.waits());
        found.unwrap_or_else(|| {
            let owners = self.server.owners.through(&OwnerMap::of_nothing());
            Seen { user: ShownId::NONE, group: ShownId::NONE, owners: Some(owners.into()) }
        })
    }

    fn find(&self) -> Option<Seen> {
        let (user, group) = self.thread.ids()?;
        let map = self.server.owner_map_of_view(self.node, self.thread.pid, self.is_ioctl)?;
        let owners = (!map.is_empty()).then(|| self.server.owners.through(&map).into());
        Some(Seen { user, group, owners })
    }
}
