//! Opening and closing.
//!
//! # Invariants
//! - Opening decides whether a file may be written to: what the server refuses, it refuses there.
//! - A node has its file open for writing as long as the kernel may bring writes to it. A shared mapping holds the
//!   file that it was made of open.
//! - What was append-only when it was opened, and still is, only grows: whatever the program does to the flags of
//!   its opening, and through no mapping.

use std::ffi::OsStr;

use rustix::io::Errno;

use super::nodes::{Node, Opening};
use super::{AccessTimes, Call, Outcome, Server};
use crate::protocol::Reply;
use crate::protocol::abi::{
    CreateIn, FOPEN_CACHE_DIR, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, OpenIn, OpenOut, ReleaseIn,
};

impl Server {
    pub(super) fn open(&self, call: &Call<'_>, open: OpenIn, reply: &mut Reply<'_>) -> Outcome {
        self.put_open(&*self.node(call)?, open.flags, reply)
    }

    /// Opens a directory, where access times are kept.
    pub(super) fn open_directory(&self, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
        let node = self.node(call)?;
        reply.put(&OpenOut { fh: 0, open_flags: self.open_flags(&node), padding: 0 })
    }

    /// Makes a file and opens it.
    pub(super) fn create(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        new: &CreateIn,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let made = self.make(call, name, &call.new_file(new))?;
        self.put_entry_open(made, new.flags, reply)
    }

    /// Makes a file without a name and opens it.
    pub(super) fn tmpfile(
        &self,
        call: &Call<'_>,
        new: &CreateIn,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let directory = self.node(call)?.directory()?;
        let made = directory.create_unnamed(&call.new_file(new)).map_err(super::failed)?;
        self.put_entry_open(made.into_inode(), new.flags, reply)
    }

    pub(super) fn release(&self, call: &Call<'_>, release: &ReleaseIn) -> Outcome {
        let opening = Opening::of_handle(release.fh).ok_or(Errno::BADF)?;
        self.node(call)?.close(opening.access);
        Ok(())
    }

    /// Replies with an inode that is looked up and opened by this.
    fn put_entry_open(&self, inode: larder::Inode, flags: u32, reply: &mut Reply<'_>) -> Outcome {
        let (id, node) = self.nodes.look_up(inode)?;
        reply
            .put(&self.entry(id, &node))
            .and_then(|()| self.put_open(&node, flags, reply))
            .inspect_err(|_| self.nodes.forget(id, 1))
    }

    fn put_open(&self, node: &Node, flags: u32, reply: &mut Reply<'_>) -> Outcome {
        let opening = node.open(flags)?;
        let direct = if opening.is_direct() { FOPEN_DIRECT_IO } else { 0 };
        let open_flags = self.open_flags(node) | direct;
        reply
            .put(&OpenOut { fh: opening.handle(), open_flags, padding: 0 })
            .inspect_err(|_| node.close(opening.access))
    }

    /// What the kernel has of the content is still so, unless the next read is to be seen.
    fn open_flags(&self, node: &Node) -> u32 {
        let keeps_times = self.options.access_times != AccessTimes::Never;
        let is_due = keeps_times && self.is_access_due(&node.inode, &node.inode.metadata());
        if is_due { 0 } else { FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR }
    }
}
