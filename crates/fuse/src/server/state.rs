//! The state of a server.

use std::path::Path;
use std::sync::Arc;

use larder::{Filesystem, Health, Subvolume};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::call::Call;
use super::channel::Channel;
use super::hidden::Hidden;
use super::interrupt::Interrupts;
use super::nodes::{FuseNode, NodeRecord, Nodes};
use super::owners::Owners;
use super::pruning::Pruning;
use super::view::Views;
use super::walkers::Walkers;
use crate::options::{AccessTimes, ServerOptions};
use crate::protocol::abi::ShownId;

/// Exists if the kernel runs SELinux.
const SELINUX: &str = "/sys/fs/selinux";

/// Serves a subvolume, and those nested in it, as a mounted file system.
#[derive(Debug)]
pub struct Server {
    pub(super) filesystem: Filesystem,
    pub(super) nodes: Nodes,
    pub(super) pruning: Arc<Pruning>,
    pub(super) channel: Arc<Channel>,
    pub(super) views: Arc<Views>,
    pub(super) hidden: Hidden,
    /// The user who runs the server. Like root, this user may do everything.
    pub(super) owner: ShownId,
    pub(super) options: ServerOptions,
    pub(super) owners: Owners,
    pub(super) interrupts: Interrupts,
    pub(super) walkers: Walkers,
    /// The health when this server replaced another.
    earlier: Option<Health>,
    pub(super) has_selinux: bool,
    /// Why it shows an older state than the newest, if it follows and could not.
    pub(super) behind: Mutex<Option<String>>,
}

/// What a server hands over to the one that takes its place: everything that does not depend on the
/// opening of the file system.
pub(super) struct Handover {
    /// The subvolume that is shown.
    root: u64,
    nodes: Vec<NodeRecord>,
    next_stand_in: u64,
    pruning: Arc<Pruning>,
    channel: Arc<Channel>,
    views: Arc<Views>,
    health: Health,
}

impl Server {
    /// A server whose root is that of `subvolume`.
    pub fn new(
        filesystem: &Filesystem,
        subvolume: &Subvolume,
        options: ServerOptions,
    ) -> larder::Result<Self> {
        let root = subvolume.root()?.into_inode();
        let owner = ShownId::new(rustix::process::geteuid().as_raw());
        let owners = Owners::new(options.owner_map.clone());
        let (filesystem, nodes) = (filesystem.clone(), Nodes::new(root));
        let (channel, views, hidden) = Default::default();
        let (interrupts, walkers, earlier) = Default::default();
        let pruning = Arc::new(Pruning::new(options.most_nodes));
        Ok(Self {
            filesystem,
            nodes,
            pruning,
            channel,
            views,
            hidden,
            owner,
            options,
            owners,
            interrupts,
            walkers,
            earlier,
            has_selinux: Path::new(SELINUX).exists(),
            behind: Mutex::default(),
        })
    }

    /// What the server that takes the place of this one needs.
    pub(super) fn handover(&self) -> Handover {
        Handover {
            root: self.nodes.root().subvolume_id(),
            nodes: self.nodes.records(),
            next_stand_in: self.nodes.next_stand_in(),
            pruning: self.pruning.clone(),
            channel: self.channel.clone(),
            views: self.views.clone(),
            health: self.health(),
        }
    }

    /// A server of another opening of the same file system. It replaces one that serves no request
    /// now.
    pub(super) fn taking_over(
        filesystem: &Filesystem,
        handover: &Handover,
        options: ServerOptions,
    ) -> larder::Result<Self> {
        let root = filesystem.subvolume_by_id(handover.root)?;
        let (pruning, channel) = (handover.pruning.clone(), handover.channel.clone());
        let (views, earlier) = (handover.views.clone(), Some(handover.health.clone()));
        let server =
            Self { pruning, channel, views, earlier, ..Self::new(filesystem, &root, options)? };
        server.nodes.take_over(filesystem, &handover.nodes, handover.next_stand_in);
        Ok(server)
    }

    /// The health of the file system since it was mounted, under this server and those before it.
    pub(super) fn health(&self) -> Health {
        let mut health = self.filesystem.health();
        health.waits = health.waits.or_else(|| self.behind.lock().clone());
        if let Some(earlier) = &self.earlier {
            health.committed_at = health.committed_at.or(earlier.committed_at);
            health.healed_copies += earlier.healed_copies;
        }
        health
    }

    /// Whether the kernel asks before it lists a directory.
    pub(super) fn opens_directories(&self) -> bool {
        self.options.access_times != AccessTimes::Never || self.options.follow.is_some()
    }

    /// How it serves.
    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The node that a request is about.
    pub(super) fn node(&self, call: &Call<'_>) -> Result<Arc<FuseNode>, Errno> {
        self.nodes.get(call.id)
    }
}
