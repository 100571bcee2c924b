//! Further mounts of the same file system in other places, of the same subvolume or another.
//!
//! # Invariants
//! - A further mount is of the same superblock: the kernel has one cache for all, so that a change
//!   through any of them is seen in all at once.
//! - Serving ends with the last mount, not with the first.
//! - No remount begins while a mount is made. A remount that has told the kernel, and not yet the
//!   server, changes nothing that a mount takes over.

use std::path::PathBuf;

use larder::Subvolume;
use larder_ioctl::channel::MountReply;
use larder_platform::errno::in_words;
use rustix::io::Errno;

use super::configuration::FurtherMount;
use super::exchange::Exchange;
use super::numbers::TOP_LEVEL;
use super::refusal::{Refusal, refuse};
use super::state::Server;
use crate::transport::{Tree, attributes};

/// Makes a mount with the options `words`, for a client to attach. Only a client that could write to
/// the image (`may_write`) gets one for writing.
pub(super) fn mount(
    exchange: &Exchange,
    words: &str,
    may_write: bool,
) -> Result<(MountReply, Tree), Refusal> {
    let configuration = exchange.configuration.lock();
    let (Some(superblock), Some(configuration)) = (&exchange.superblock, &*configuration) else {
        return Err(refuse(
            Errno::PERM,
            "its server cannot mount it again: as root, show it in another place with 'mount --bind'",
        ));
    };
    let said = &configuration.said;
    let (further, path) = exchange.with_server(|server| {
        let further = (configuration.read_further)(&server.filesystem, said, words);
        let further = further.map_err(|message| refuse(Errno::INVAL, &message))?;
        let path = path_to(&further.subvolume, server)?;
        Ok((further, path))
    })?;
    let FurtherMount { subvolume, options, server, ignored } = further;
    if !may_write && !options.read_only {
        return Err(refuse(Errno::ACCESS, "you may only read it: say 'ro'"));
    }
    let is_read_only = exchange.is_read_only();
    if is_read_only && !options.read_only {
        return Err(refuse(
            Errno::ROFS,
            "it is mounted for reading only: remount it with 'rw' first, or say 'ro' here too",
        ));
    }
    let tree = superblock.tree(is_read_only, attributes(&options, &server));
    // The kernel refuses only if the last mount has just ended.
    let tree = tree.map_err(|error| refuse(Errno::NOTCONN, &in_words(&error)))?;
    Ok((MountReply { subvolume: subvolume.id(), path, ignored: ignored.join(",") }, tree))
}

/// The path of `subvolume` from the root of what `server` serves.
fn path_to(subvolume: &Subvolume, server: &Server) -> Result<PathBuf, Refusal> {
    let root = server.nodes.root().subvolume_id();
    if subvolume.id() == root {
        return Ok(PathBuf::new());
    }
    if root == TOP_LEVEL {
        return Ok(subvolume.path()?);
    }
    let message = "another subvolume of it is mounted, and only Linux 6.15 or newer can add one";
    Err(refuse(Errno::OPNOTSUPP, message))
}
