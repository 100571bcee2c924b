//! What tokens stand for.
//!
//! # Invariants
//! - A token is a random number. The server puts it into one answer to an ioctl, so that only a
//!   process that has the inode open learns it. That process may pass it on.
//! - A token is redeemed once, within [`LIFETIME`].
//! - What a caller may do was read while the caller waited for the token. The process that redeems
//!   it, and what that process has become since, do not matter.
//! - A user has a bounded number of tokens, and takes none from another user; root of a container
//!   takes none from callers that administer the file system.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use larder::{Directory, Inode, Uuid};
use larder_ioctl::channel::Token;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::protocol::abi::ShownId;
use crate::server::access::{Caller, is_served};
use crate::server::call::failed;
use crate::server::ids::Ids;
use crate::server::refusal::{Refusal, refuse};
use crate::server::state::Server;
use crate::server::thread::Thread;

/// How long a token can be redeemed.
const LIFETIME: Duration = Duration::from_secs(60);
/// The most tokens of a user, with and without administering. A further one replaces the oldest.
const MOST_OF_USER: usize = 128;

/// An inode that a caller had open, and the caller.
#[derive(Debug)]
pub(in crate::server) struct Grant {
    subvolume: u64,
    inode: u64,
    /// Tells it from a later inode of that number.
    generation: u64,
    ids: Ids<'static>,
    thread: Thread<'static>,
    /// Whether the caller runs the server.
    is_owner: bool,
    /// Whether the caller could write through a mount.
    is_writable: bool,
}

/// Tokens that wait to be redeemed, the oldest first.
#[derive(Debug, Default)]
pub(in crate::server) struct Grants(Mutex<VecDeque<(Token, Instant, Grant)>>);

impl Grants {
    /// A token for `grant`.
    pub(in crate::server) fn give(&self, grant: Grant) -> Token {
        let (first, second) = Uuid::new_v4().as_u64_pair();
        let token = Token { words: [first, second] };
        let mut waiting = self.0.lock();
        waiting.retain(|(_, given, _)| given.elapsed() < LIFETIME);
        let kind = |grant: &Grant| (grant.ids.seen().user, grant.administers());
        let own = kind(&grant);
        let is_theirs = |(_, _, other): &(Token, Instant, Grant)| kind(other) == own;
        if waiting.iter().filter(|it| is_theirs(it)).count() >= MOST_OF_USER
            && let Some(oldest) = waiting.iter().position(is_theirs)
        {
            waiting.remove(oldest);
        }
        waiting.push_back((token, Instant::now(), grant));
        token
    }

    /// What `token` stands for, if it was given and not redeemed before.
    pub(in crate::server) fn redeem(&self, token: Token) -> Option<Grant> {
        let mut waiting = self.0.lock();
        let position = waiting.iter().position(|(other, _, _)| *other == token)?;
        let (_, given, grant) = waiting.remove(position)?;
        (given.elapsed() < LIFETIME).then_some(grant)
    }
}

impl Grant {
    /// Of a caller that waits for the reply.
    pub(in crate::server) fn new(inode: &Inode, caller: &Caller<'_>, is_writable: bool) -> Self {
        Self {
            subvolume: inode.subvolume_id(),
            inode: inode.number(),
            generation: inode.metadata().generation,
            ids: caller.ids.as_they_are(),
            thread: caller.thread.as_it_is(),
            is_owner: caller.runs_server && caller.thread.is_in_namespace(),
            is_writable,
        }
    }

    /// The inode.
    pub(in crate::server) fn inode(&self, server: &Server) -> Result<Inode, Errno> {
        let subvolume = server.filesystem.subvolume_by_id(self.subvolume).map_err(failed)?;
        let inode = subvolume.inode(self.inode).map_err(failed)?;
        let is_it = inode.metadata().generation == self.generation;
        if is_it { Ok(inode) } else { Err(Errno::STALE) }
    }

    /// The inode, which has to be a directory.
    pub(super) fn directory(&self, server: &Server) -> Result<Directory, Refusal> {
        let inode = self.inode(server).map_err(|errno| refuse(errno, ""))?;
        Ok(inode.into_directory()?)
    }

    /// The inode, which has to be a directory that the caller could change.
    pub(super) fn writable_directory(&self, server: &Server) -> Result<Directory, Refusal> {
        if self.is_writable { self.directory(server) } else { Err(refuse(Errno::ROFS, "")) }
    }

    /// The caller, as any user of the mount.
    pub(super) fn caller<'c>(&'c self, server: &'c Server) -> Caller<'c> {
        let Self { ids, thread, .. } = self;
        Caller { ids, thread, runs_server: false, shown_owners: &server.owners }
    }

    /// Whether the caller is root or the user who runs the server: the server talks to no other.
    pub(super) fn is_of(&self, owner: ShownId) -> bool {
        is_served(self.ids.seen().user, owner)
    }

    /// Whether the caller may act for the file system as a whole.
    pub(super) fn administers(&self) -> bool {
        self.has(CapabilitySet::SYS_ADMIN)
    }

    /// Refuses callers that may not act for the file system as a whole.
    pub(super) fn check_administers(&self) -> Result<(), Refusal> {
        self.check_has(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN")
    }

    /// Refuses callers that any permission restricts.
    pub(super) fn check_may_everything(&self) -> Result<(), Refusal> {
        self.check_has(Caller::EVERYTHING, "all capabilities of root")
    }

    fn has(&self, capabilities: CapabilitySet) -> bool {
        self.is_owner || self.thread.capabilities().contains(capabilities)
    }

    fn check_has(&self, capabilities: CapabilitySet, named: &str) -> Result<(), Refusal> {
        if self.has(capabilities) {
            return Ok(());
        }
        let message = format!(
            "this needs {named} in the user namespace of the server, or the user who mounted"
        );
        Err(refuse(Errno::PERM, &message))
    }
}
