//! Replies that reach no program, since the caller was killed: the kernel does not know what they
//! say.
//!
//! # Invariants
//! - The kernel counts no lookup of such a reply and has no handle of it. So the server takes them
//!   back.
//! - What the request changed is not what the kernel has cached. So it forgets that.

use zerocopy::FromBytes;

use super::nodes::Opening;
use super::state::Server;
use crate::protocol::abi::{Dirent, EntryOut, OpenOut};
use crate::protocol::{Notice, Operation, Request};
use crate::transport::Tell;

/// Takes back what the reply `body` to `request` says.
pub(super) fn undo(server: &Server, request: &Request<'_>, body: &[u8], kernel: &dyn Tell) {
    let node = request.header().nodeid;
    let Ok(operation) = Operation::of(request) else { return };
    match operation {
        Operation::Open(_) => close(server, node, body),
        Operation::Create { .. } | Operation::Tmpfile { .. } => {
            if let Ok((EntryOut { nodeid, .. }, opened)) = EntryOut::read_from_prefix(body) {
                close(server, nodeid, opened);
            }
            forget(server, body);
        }
        Operation::Lookup { .. }
        | Operation::Mknod { .. }
        | Operation::Mkdir { .. }
        | Operation::Symlink { .. }
        | Operation::Link { .. } => forget(server, body),
        Operation::Readdir { plus: true, .. } => forget_listed(server, body),
        _ => {}
    }
    let names: &[_] = match operation {
        Operation::Create { name, .. }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Symlink { name, .. }
        | Operation::Link { name, .. }
        | Operation::Unlink { name }
        | Operation::Rmdir { name } => &[(node, name)],
        Operation::Rename { name, new_directory, new_name, .. } => {
            &[(node, name), (new_directory, new_name)]
        }
        _ => &[],
    };
    for (directory, name) in names {
        for notice in Notice::name_and_directory(*directory, name) {
            kernel.soon(notice);
        }
    }
    let changed = match operation {
        Operation::SetAttr(_)
        | Operation::Write { .. }
        | Operation::Fallocate(_)
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::Ioctl { .. } => Some(node),
        Operation::CopyFileRange(copy) => Some(copy.nodeid_out),
        Operation::Link { inode, .. } => Some(inode),
        _ => None,
    };
    if let Some(node) = changed {
        kernel.soon(Notice::content(node, 0, 0));
    }
}

/// Takes back the lookup of an entry; an error has none.
fn forget(server: &Server, body: &[u8]) {
    if let Ok((EntryOut { nodeid, .. }, _)) = EntryOut::read_from_prefix(body) {
        forget_node(server, nodeid);
    }
}

fn forget_node(server: &Server, node: u64) {
    // An entry without an inode says that there is none.
    if node != 0 {
        server.nodes.forget(node, 1);
        server.filesystem.delete_unlinked();
    }
}

/// Takes back the lookups of a listing.
fn forget_listed(server: &Server, mut body: &[u8]) {
    while let Ok((EntryOut { nodeid, .. }, rest)) = EntryOut::read_from_prefix(body) {
        let Ok((Dirent { namelen, .. }, rest)) = Dirent::read_from_prefix(rest) else { return };
        forget_node(server, nodeid);
        let Some(rest) = rest.get((namelen as usize).next_multiple_of(8)..) else { return };
        body = rest;
    }
}

/// Closes a file whose handle reached no program.
fn close(server: &Server, node: u64, body: &[u8]) {
    let opened = OpenOut::read_from_prefix(body).ok();
    if let Some(opening) = opened.and_then(|(opened, _)| Opening::of_handle(opened.fh))
        && let Ok(node) = server.nodes.get(node)
    {
        node.close(opening.access);
    }
}
