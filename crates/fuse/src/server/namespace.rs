//! Names: looking up, creating, renaming and removing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use larder::{Directory, ErrorKind, FileType, Inode, NewInode, RenameMode};
use rustix::io::Errno;

use super::atime;
use super::attributes::{self, device_of};
use super::call::{Call, Outcome, failed};
use super::nodes::FuseNode;
use super::state::Server;
use crate::protocol::Reply;
use crate::protocol::abi::{EntryOut, MkdirIn, MknodIn};

const S_IFDIR: u32 = 0o040_000;
const S_IFMT: u32 = 0o170_000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_NOREPLACE_WHITEOUT: u32 = RENAME_NOREPLACE | RENAME_WHITEOUT;
/// Linux's own limit on names, which FUSE leaves to the server.
const NAME_MAX: usize = 255;

pub(super) fn lookup(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    reply: &mut Reply<'_>,
) -> Outcome {
    if name == "." || name == ".." {
        return look_up_by_handle(server, call, name, reply);
    }
    let directory = server.node(call)?.directory()?;
    if server.hidden.has(&directory, name) {
        return Err(Errno::BUSY);
    }
    match directory.child(name) {
        Ok(inode) => {
            if inode.file_type() == FileType::Directory {
                return put_entry(server, inode, reply);
            }
            server.walkers.ask(call.caller.thread.pid);
            if server.pruning.is_crowded() {
                return put_looked_up(server, server.nodes.look_up_unopened(inode)?, reply);
            }
            put_entry(server, inode, reply)
        }
        Err(error) if error.kind() == ErrorKind::NotFound && name.len() <= NAME_MAX => {
            reply.put(&EntryOut::negative(server.options.valid_seconds()))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Finds an inode by a program's handle of it, or the directory above it. The kernel may have
/// forgotten both; it looks `.` and `..` up in no other case.
fn look_up_by_handle(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    reply: &mut Reply<'_>,
) -> Outcome {
    let inode = server.nodes.known_or_forgotten(call.id, &server.filesystem)?;
    if name == "." {
        return put_entry(server, inode, reply);
    }
    // The way up ends at the root of the mount. An inode outside has none.
    if server.nodes.is_above_root(&inode) {
        return Err(Errno::STALE);
    }
    let parent = inode.into_directory().and_then(|directory| directory.parent());
    put_entry(server, parent.map_err(failed)?.into_inode(), reply)
}

pub(super) fn readlink(server: &Server, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let node = server.node(call)?;
    let target = node.inode.link_target().map_err(failed)?;
    atime::note_read(&server.options, &node.inode);
    reply.put_bytes(target.as_os_str().as_bytes())
}

pub(super) fn symlink(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    target: &OsStr,
    reply: &mut Reply<'_>,
) -> Outcome {
    let directory = server.node(call)?.directory()?;
    let made = directory.symlink_child(name, target.as_ref(), &call.new_inode(0, 0, (0, 0))?);
    put_entry(server, made.map_err(failed)?, reply)
}

pub(super) fn mknod(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    new: &MknodIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let new = call.new_inode(new.mode, new.umask, device_of(new.rdev))?;
    let made = make(server, call, name, &new)?;
    put_entry(server, made, reply)
}

pub(super) fn mkdir(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    new: MkdirIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let mode = new.mode & !S_IFMT | S_IFDIR;
    let made = make(server, call, name, &call.new_inode(mode, new.umask, (0, 0))?)?;
    put_entry(server, made, reply)
}

pub(super) fn unlink(server: &Server, call: &Call<'_>, name: &OsStr) -> Outcome {
    let directory = server.node(call)?.directory()?;
    keep(server, &directory, name);
    directory.remove_child(name).map_err(failed)
}

pub(super) fn rmdir(server: &Server, call: &Call<'_>, name: &OsStr) -> Outcome {
    server.node(call)?.directory()?.remove_child_directory(name).map_err(failed)
}

pub(super) fn rename(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    new_directory: u64,
    new_name: &OsStr,
    flags: u32,
) -> Outcome {
    let mode = match flags {
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::NoReplace,
        RENAME_EXCHANGE => RenameMode::Exchange,
        RENAME_WHITEOUT | RENAME_NOREPLACE_WHITEOUT => {
            let (uid, gid) = call.caller.stored_ids()?;
            match flags {
                RENAME_WHITEOUT => RenameMode::Whiteout { uid, gid },
                _ => RenameMode::NoReplaceWhiteout { uid, gid },
            }
        }
        _ => return Err(Errno::INVAL),
    };
    let from = server.node(call)?.directory()?;
    let to = server.nodes.get(new_directory)?.directory()?;
    keep(server, &to, new_name);
    from.rename_child(name, &to, new_name, mode).map_err(failed)
}

pub(super) fn link(
    server: &Server,
    call: &Call<'_>,
    inode: u64,
    name: &OsStr,
    reply: &mut Reply<'_>,
) -> Outcome {
    let linked = server.nodes.get(inode)?;
    server.node(call)?.directory()?.link_child(name, &linked.inode).map_err(failed)?;
    put_entry(server, linked.inode.clone(), reply)
}

pub(super) fn make(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    new: &NewInode,
) -> Result<Inode, Errno> {
    server.node(call)?.directory()?.create_child(name, new).map_err(failed)
}

/// Opens the inode that is about to lose `name`, so that a program which refers to it can go on.
fn keep(server: &Server, directory: &Directory, name: &OsStr) {
    // A name that cannot be found cannot be removed either.
    if let Ok(inode) = directory.child(name) {
        server.nodes.keep(inode);
    }
}

/// Replies with an inode, which this looks up.
fn put_entry(server: &Server, inode: Inode, reply: &mut Reply<'_>) -> Outcome {
    put_looked_up(server, server.nodes.look_up(inode)?, reply)
}

fn put_looked_up(
    server: &Server,
    (id, node): (u64, Arc<FuseNode>),
    reply: &mut Reply<'_>,
) -> Outcome {
    reply.put(&attributes::entry(server, id, &node)).inspect_err(|_| server.nodes.forget(id, 1))
}
