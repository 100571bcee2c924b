//! Reading and writing files.

use larder::{AllocateMode, Metadata};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::atime;
use super::call::{Call, Outcome, failed};
use super::init::tells_of_direct_writes;
use super::nodes::{FuseNode, Opening};
use super::page_tail::{self, parts_outside};
use super::state::Server;
use crate::protocol::abi::{
    CopyFileRangeIn, FallocateIn, LseekIn, LseekOut, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID,
    WriteIn, WriteOut,
};
use crate::protocol::{Notice, Reply};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const FALLOC_FL_KEEP_SIZE: u32 = 0x1;
const FALLOC_FL_PUNCH_HOLE: u32 = 0x2;
const FALLOC_FL_ZERO_RANGE: u32 = 0x10;
/// The most that a reply can count, in whole sectors of any size.
const MOST_COPIED_BYTES: u64 = 0xFFFF_0000;
/// The copy looks for an interrupt after so many bytes: data that cannot be shared takes a while to
/// copy.
const COPIED_AT_ONCE_BYTES: u64 = 64 << 20;

pub(super) fn read(
    server: &Server,
    call: &Call<'_>,
    from: &ReadIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    // From now on the kernel's copy of the page is the same as the server's.
    let _ = node.page_tail.take(from.offset, from.size as usize);
    let len = node.file()?.read_at(reply.room(from.size as usize), from.offset);
    reply.filled(len.map_err(failed)?);
    atime::note_read(&server.options, &node.inode);
    Ok(())
}

pub(super) fn write(
    server: &Server,
    call: &Call<'_>,
    to: &WriteIn,
    data: &[u8],
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    let file = node.open_file()?;
    let is_from_cache = to.write_flags & WRITE_CACHE != 0;
    let opening = if is_from_cache { None } else { Opening::of_handle(to.fh) };
    let appends = to.flags & OFlags::APPEND.bits() != 0;
    if opening.is_some_and(|it| it.only_appends) && !appends && node.is_append_only() {
        return Err(Errno::PERM);
    }
    if to.write_flags & WRITE_KILL_SUIDGID != 0 && node.has_set_id_bits()
        || node.may_have_capability()?
    {
        call.caller.drop_privileges(&node.inode)?;
    }
    let tail = node.page_tail.take(to.offset, data.len()).filter(|_| is_from_cache);
    for (part, offset) in parts_outside(tail, data, to.offset) {
        let written = if is_from_cache && server.options.writeback_cache {
            file.write_keeping_times(part, offset)
        } else {
            file.write_at(part, offset)
        };
        written.map_err(failed)?;
    }
    if is_from_cache && !server.options.writeback_cache {
        node.blocks.note_writeback();
    }
    // The kernel drops its cache when such a write begins, and not always when it ends: a program
    // that reads in between makes it cache the old data.
    let is_direct =
        opening.is_some_and(|it| it.is_direct() || to.flags & OFlags::DIRECT.bits() != 0);
    if is_direct && tells_of_direct_writes(call) {
        call.kernel.now_or_soon(Notice::content(call.id, to.offset, data.len() as u64));
    }
    reply.put(&WriteOut { size: data.len() as u32, padding: 0 })
}

pub(super) fn seek(
    server: &Server,
    call: &Call<'_>,
    seek: &LseekIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    let file = node.file()?;
    // The kernel may have dirty data that the server does not know, and asks without sending it.
    // The notice makes it write the data back.
    let writes_data_back = || call.kernel.now(&Notice::content(call.id, seek.offset, 0));
    if may_miss_data(server, &node) && writes_data_back().is_err() {
        let offset = seek_without_knowing(server, &node, seek)?;
        return reply.put(&LseekOut { offset });
    }
    let found = match seek.whence {
        SEEK_DATA => file.seek_data(seek.offset),
        SEEK_HOLE => file.seek_hole(seek.offset),
        _ => return Err(Errno::INVAL),
    };
    reply.put(&LseekOut { offset: found.map_err(failed)? })
}

/// An answer that holds whatever dirty data the kernel has: the whole file may be data, up to the
/// hole at its end.
///
/// # Errors
/// `EAGAIN` if only the kernel knows where the file ends.
fn seek_without_knowing(server: &Server, node: &FuseNode, seek: &LseekIn) -> Result<u64, Errno> {
    let size = node.inode.metadata().size_bytes;
    match seek.whence {
        SEEK_DATA if seek.offset < size => Ok(seek.offset),
        SEEK_DATA | SEEK_HOLE if server.options.writeback_cache => Err(Errno::AGAIN),
        SEEK_HOLE if seek.offset < size => Ok(size),
        SEEK_DATA | SEEK_HOLE => Err(Errno::NXIO),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn allocate(server: &Server, call: &Call<'_>, range: &FallocateIn) -> Outcome {
    let node = server.node(call)?;
    let file = node.file()?;
    let keeps_size = range.mode & FALLOC_FL_KEEP_SIZE != 0;
    let mode = if keeps_size { AllocateMode::KeepSize } else { AllocateMode::Grow };
    let (offset, len_bytes) = (range.offset, range.length);
    if !keeps_size {
        write_back_last_page(server, call, &node, offset.saturating_add(len_bytes));
    }
    with_times(server, &node, || {
        match range.mode & !FALLOC_FL_KEEP_SIZE {
            0 => file.allocate(offset, len_bytes, mode),
            FALLOC_FL_ZERO_RANGE => file.zero_range(offset, len_bytes, mode),
            FALLOC_FL_PUNCH_HOLE if keeps_size => file.punch_hole(offset, len_bytes),
            _ => return Err(Errno::OPNOTSUPP),
        }
        .map_err(failed)
    })
}

/// Copies by sharing extents where it can.
pub(super) fn copy_range(
    server: &Server,
    call: &Call<'_>,
    copy: &CopyFileRangeIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let source = server.node(call)?.file()?;
    let node = server.nodes.get(copy.nodeid_out)?;
    let file = node.open_file()?;
    let len_bytes = copy.len.min(MOST_COPIED_BYTES);
    let out = Call { id: copy.nodeid_out, ..*call };
    write_back_last_page(server, &out, &node, copy.off_out.saturating_add(len_bytes));
    let watch = server.interrupts.watch(call.unique);
    let copied = with_times(server, &node, || {
        let mut copied = 0;
        while copied < len_bytes && !watch.is_interrupted() {
            let piece = (len_bytes - copied).min(COPIED_AT_ONCE_BYTES);
            let place = |offset: u64| offset.checked_add(copied).ok_or(Errno::FBIG);
            let (from, to) = (place(copy.off_in)?, place(copy.off_out)?);
            let len = file.copy_range(&source, from, piece, to).map_err(failed)?;
            copied += len;
            if len < piece {
                break;
            }
        }
        Ok(copied)
    });
    match copied? {
        0 if watch.is_interrupted() => Err(Errno::INTR),
        copied => reply.put(&WriteOut { size: copied as u32, padding: 0 }),
    }
}

pub(super) fn sync(server: &Server, call: &Call<'_>) -> Outcome {
    let node = server.node(call)?;
    if server.options.notreelog {
        server.filesystem.sync().map_err(failed)?;
    } else {
        node.inode.sync().map_err(failed)?;
    }
    // With writeback_cache the kernel asks again only when the file is closed.
    if node.blocks.are_stale() || server.options.writeback_cache {
        call.kernel.now_or_soon(Notice::attributes(call.id));
    }
    Ok(())
}

/// Whether the kernel may have dirty data of a file.
pub(super) fn may_miss_data(server: &Server, node: &FuseNode) -> bool {
    node.may_be_mapped_for_writing() || server.options.writeback_cache && node.is_open_for_writing()
}

/// The notices that make the kernel write back what it may have of files that programs write to.
pub(super) fn missing_data(server: &Server) -> impl Iterator<Item = Notice> {
    let nodes = server.nodes.open_nodes();
    nodes.filter(|(_, node)| may_miss_data(server, node)).map(|(id, _)| Notice::content(id, 0, 0))
}

/// Changes content, and times with it unless the kernel keeps the times.
fn with_times<T>(
    server: &Server,
    node: &FuseNode,
    change: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if server.options.writeback_cache { keeping_times(node, change) } else { change() }
}

/// ftruncate(2) has changed the size of a file.
pub(super) fn note_resized(server: &Server, node: &FuseNode, old_end: u64, new_end: u64) {
    if node.may_be_mapped_for_writing() && !server.options.writeback_cache {
        node.page_tail.resized(old_end, new_end);
    }
}

/// A file is about to grow to `new_end`, unless it is that long already. Makes the kernel write its
/// last page back.
fn write_back_last_page(server: &Server, call: &Call<'_>, node: &FuseNode, new_end: u64) {
    let end = node.inode.metadata().size_bytes;
    let has_tail = new_end > end && !end.is_multiple_of(page_tail::page_bytes());
    if has_tail && node.may_be_mapped_for_writing() && !server.options.writeback_cache {
        // If this thread must not wait, the bytes past the end become content.
        let _ = call.kernel.now(&Notice::content(call.id, end, 1));
    }
}

/// Changes content without changing times: the kernel has set them already.
fn keeping_times<T>(
    node: &FuseNode,
    change: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let Metadata { mtime, ctime, .. } = node.inode.metadata();
    let done = change()?;
    node.open_file()?.set_times_of_writes(mtime, ctime).map_err(failed)?;
    Ok(done)
}
