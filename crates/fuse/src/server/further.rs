//! Further mounts of what is mounted: the same file system in another place, as it is or another subvolume of it.
//!
//! # Invariants
//! - A further mount is of the same superblock: the kernel keeps one copy of everything, and whatever place a change
//!   comes through, all see it at once.
//! - Serving ends with the last mount, whichever was the first.
//! - While the mount is made no remount begins. One that has told the kernel, and not yet the server, changes nothing
//!   that a mount takes over.

use std::path::PathBuf;

use larder::{Filesystem, Subvolume};
use larder_ioctl::channel::MountReply;
use rustix::io::Errno;

use super::channel::Refusal;
use super::nodes::TOP_LEVEL;
use super::{Exchange, Server, ServerOptions};
use crate::MountOptions;
use crate::transport::{Tree, attributes};

/// What a further mount is to be.
#[derive(Debug)]
pub struct FurtherMount {
    /// What to show.
    pub subvolume: Subvolume,
    /// Of these those count that each mount has for itself.
    pub options: MountOptions,
    /// Of these the times of last access count, which are those of all mounts.
    pub server: ServerOptions,
    /// Words that ask for something which is so for all mounts, and is otherwise.
    pub ignored: Vec<String>,
}

/// Reads the options `words` of a further mount of a file system that was mounted, and remounted, with the
/// lists `said`. An error is for who asked.
pub type ReadFurther =
    dyn Fn(&Filesystem, &[String], &str) -> Result<FurtherMount, String> + Send + Sync;

impl Exchange {
    /// Makes a mount with the options `words`, for a client to put in a place.
    pub(super) fn mount(&self, words: &str) -> Result<(MountReply, Tree), Refusal> {
        let refusal = |errno, message: &str| Refusal { errno, message: message.to_owned() };
        let configuration = self.configuration.lock();
        let (Some(superblock), Some(configuration)) = (&self.superblock, &*configuration) else {
            return Err(refusal(
                Errno::PERM,
                "its server cannot mount it again: as root, show it in another place with 'mount --bind'",
            ));
        };
        let said = &configuration.said;
        let (further, path) = self.with_server(|server| {
            let further = (configuration.read_further)(&server.filesystem, said, words);
            let further = further.map_err(|message| refusal(Errno::INVAL, &message))?;
            let path = server.path_to(&further.subvolume)?;
            Ok((further, path))
        })?;
        let FurtherMount { subvolume, options, server, ignored } = further;
        let is_read_only = self.is_read_only();
        if is_read_only && !options.read_only {
            return Err(refusal(
                Errno::ROFS,
                "it is mounted for reading only: remount it with 'rw' first, or say 'ro' here too",
            ));
        }
        let tree = superblock.tree(is_read_only, attributes(&options, server));
        // The kernel has its reasons only where the last mount has just ended.
        let tree = tree.map_err(|error| refusal(Errno::NOTCONN, &error.to_string()))?;
        Ok((MountReply { subvolume: subvolume.id(), path, ignored: ignored.join(",") }, tree))
    }
}

impl Server {
    /// The path of `subvolume` from the root of what is served.
    fn path_to(&self, subvolume: &Subvolume) -> Result<PathBuf, Refusal> {
        let root = self.nodes.root().subvolume_id();
        if subvolume.id() == root {
            return Ok(PathBuf::new());
        }
        if root == TOP_LEVEL {
            return Ok(subvolume.path()?);
        }
        let message =
            "another subvolume of it is mounted, and only Linux 6.15 or newer can add one";
        Err(Refusal { errno: Errno::OPNOTSUPP, message: message.to_owned() })
    }
}
