//! Names of subvolumes that are being received, which cannot be opened yet.

use std::ffi::{OsStr, OsString};

use larder::Directory;
use larder_ioctl::channel::NodeId;
use parking_lot::RwLock;

/// The names, each with its directory.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    names: RwLock<Vec<(NodeId, OsString)>>,
}

impl Hidden {
    /// Whether `name` in `directory` cannot be opened yet.
    pub(super) fn has(&self, directory: &Directory, name: &OsStr) -> bool {
        let names = self.names.read();
        names.iter().any(|hidden| hidden.0 == node_of(directory) && hidden.1 == name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.read().is_empty()
    }

    pub(super) fn insert(&self, directory: &Directory, name: &OsStr) {
        self.names.write().push((node_of(directory), name.to_owned()));
    }

    pub(super) fn remove(&self, directory: &Directory, name: &OsStr) {
        let mut names = self.names.write();
        let directory = node_of(directory);
        let at = names.iter().position(|hidden| hidden.0 == directory && hidden.1 == name);
        at.inspect(|at| drop(names.swap_remove(*at)));
    }
}

fn node_of(directory: &Directory) -> NodeId {
    NodeId { subvolume: directory.subvolume_id(), inode: directory.number() }
}
