//! Opening and closing.
//!
//! # Invariants
//! - An open decides whether a file may be written: what the server refuses, it refuses there.
//! - A node has its file open for writing as long as the kernel may send writes. A shared mapping
//!   keeps its file open.
//! - A file that was append-only when it was opened, and still is, only grows: whatever the program
//!   does to the flags of its descriptor, and by no mapping.

use std::ffi::OsStr;

use larder::{Inode, NewInode};
use rustix::io::Errno;

use super::attributes::may_have_unknown_data;
use super::call::{Call, Outcome, failed};
use super::nodes::{FuseNode, Opening};
use super::state::Server;
use super::{atime, attributes, namespace};
use crate::options::AccessTimes;
use crate::protocol::abi::{
    CreateIn, FOPEN_CACHE_DIR, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, OpenIn, OpenOut, ReleaseIn,
};
use crate::protocol::{Notice, Reply};

const S_IFREG: u32 = 0o100_000;
const S_IFMT: u32 = 0o170_000;

pub(super) fn open(
    server: &Server,
    call: &Call<'_>,
    open: OpenIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    let opening = node.open(open.flags)?;
    let metadata = node.inode.metadata();
    if metadata.allocated_bytes == 0 && may_have_unknown_data(server, &node, &metadata) {
        // The kernel may have cached that it takes no space: see there.
        call.kernel.now_or_soon(Notice::attributes(call.id));
    }
    put_open(server, &node, opening, reply)
}

/// Opens a directory, if [the server wants to know](Server::opens_directories).
pub(super) fn open_directory(server: &Server, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let node = server.node(call)?;
    // Nobody tells the kernel which listings have changed when the server follows.
    let follows = server.options.follow.is_some();
    let open_flags = if follows { 0 } else { open_flags(server, &node) };
    reply.put(&OpenOut { fh: 0, open_flags, padding: 0 })
}

/// Creates a file and opens it.
pub(super) fn create(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    new: &CreateIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let made = namespace::make(server, call, name, &new_file(call, new)?)?;
    put_entry_open(server, made, new.flags, reply)
}

/// Creates a file without a name and opens it.
pub(super) fn create_unnamed(
    server: &Server,
    call: &Call<'_>,
    new: &CreateIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let directory = server.node(call)?.directory()?;
    let made = directory.create_unnamed(&new_file(call, new)?).map_err(failed)?;
    put_entry_open(server, made.into_inode(), new.flags, reply)
}

pub(super) fn release(server: &Server, call: &Call<'_>, release: &ReleaseIn) -> Outcome {
    let opening = Opening::of_handle(release.fh).ok_or(Errno::BADF)?;
    let node = server.node(call)?;
    node.close(opening.access);
    if node.blocks.are_stale() {
        call.kernel.soon(Notice::attributes(call.id));
    }
    Ok(())
}

/// Replies with an inode, which this looks up and opens.
fn put_entry_open(server: &Server, inode: Inode, flags: u32, reply: &mut Reply<'_>) -> Outcome {
    let (id, node) = server.nodes.look_up(inode)?;
    let opening = node.open(flags).inspect_err(|_| server.nodes.forget(id, 1))?;
    // Of a file that is open: data may come before the next reply.
    let entry = attributes::entry(server, id, &node);
    node.blocks.are_asked_for_at_close();
    reply
        .put(&entry)
        .inspect_err(|_| node.close(opening.access))
        .and_then(|()| put_open(server, &node, opening, reply))
        .inspect_err(|_| server.nodes.forget(id, 1))
}

fn put_open(server: &Server, node: &FuseNode, opening: Opening, reply: &mut Reply<'_>) -> Outcome {
    let direct = if opening.is_direct() { FOPEN_DIRECT_IO } else { 0 };
    let open_flags = open_flags(server, node) | direct;
    reply
        .put(&OpenOut { fh: opening.handle(), open_flags, padding: 0 })
        .inspect_err(|_| node.close(opening.access))
}

/// The cached content is still valid, unless the server must see the next read.
fn open_flags(server: &Server, node: &FuseNode) -> u32 {
    let keeps_times = server.options.access_times != AccessTimes::Never;
    let is_due = keeps_times && atime::is_due(&server.options, &node.inode, &node.inode.metadata());
    if is_due { 0 } else { FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR }
}

/// A new file that belongs to the caller.
fn new_file(call: &Call<'_>, new: &CreateIn) -> Result<NewInode, Errno> {
    call.new_inode(new.mode & !S_IFMT | S_IFREG, new.umask, (0, 0))
}
