//! Extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{ErrorKind, SetAttributes, XattrMode};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::access::WRITE;
use super::attributes::PERMISSIONS;
use super::call::{Call, Outcome, failed};
use super::state::Server;
use crate::protocol::Reply;
use crate::protocol::abi::{GetxattrOut, SETXATTR_ACL_KILL_SGID};

/// The attribute that gives a program capabilities.
const OF_PROGRAMS: &str = "security.capability";
/// The label of a file for SELinux.
const SELINUX_LABEL: &str = "security.selinux";
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const XATTR_CREATE_AND_REPLACE: u32 = XATTR_CREATE | XATTR_REPLACE;
const S_ISGID: u32 = 0o2000;

pub(super) fn set(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    value: &[u8],
    flags: u32,
    setxattr_flags: u32,
) -> Outcome {
    let node = server.node(call)?;
    let mode = match flags {
        0 => XattrMode::Any,
        XATTR_CREATE => XattrMode::Create,
        XATTR_REPLACE => XattrMode::Replace,
        // The attribute must exist and must not: the error says which is not so, as on btrfs.
        XATTR_CREATE_AND_REPLACE => {
            let found = node.inode.xattr(name).map_err(failed);
            return Err(found.err().unwrap_or(Errno::EXIST));
        }
        _ => return Err(Errno::INVAL),
    };
    let value = server.owners.stored_xattr(name.as_bytes(), value)?;
    node.inode.set_xattr(name, &value, mode).map_err(failed)?;
    node.has_new_attribute();
    if setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
        let permissions = Some(node.inode.metadata().mode & PERMISSIONS & !S_ISGID);
        let changes = SetAttributes { permissions, ..SetAttributes::default() };
        node.inode.set_attributes(&changes).map_err(failed)?;
    }
    Ok(())
}

pub(super) fn remove(server: &Server, call: &Call<'_>, name: &OsStr) -> Outcome {
    let node = server.node(call)?;
    // The kernel asks for this when the content changes, and for a chown(2) that names neither owner
    // nor group: then before it checks the caller.
    let caller = &call.caller;
    if name == OF_PROGRAMS
        && caller.loses_set_id_bits(&node.inode)
        && !node.is_open_for_writing()
        && !caller.may_with(&node.inode.metadata(), CapabilitySet::SETFCAP)
        && caller.check_access(&node.inode, WRITE).is_err()
    {
        caller.check_owner(&node.inode)?;
    }
    node.inode.remove_xattr(name).map_err(failed)
}

pub(super) fn get(
    server: &Server,
    call: &Call<'_>,
    name: &OsStr,
    size: u32,
    reply: &mut Reply<'_>,
) -> Outcome {
    let value = server.node(call)?.inode.xattr(name).map_err(|error| {
        // If the error is that of a file system without labels, `ls -l` asks for the label of one
        // file, and not of all.
        let has_no_label = name == SELINUX_LABEL && error.kind() == ErrorKind::NoSuchAttribute;
        if has_no_label && !server.has_selinux { Errno::OPNOTSUPP } else { failed(error) }
    })?;
    let value = server.owners.shown_xattr(name.as_bytes(), value);
    put(&value, size, reply)
}

pub(super) fn list(server: &Server, call: &Call<'_>, size: u32, reply: &mut Reply<'_>) -> Outcome {
    let mut names = Vec::new();
    for xattr in server.node(call)?.inode.xattrs() {
        names.extend_from_slice(xattr.map_err(failed)?.name.as_bytes());
        names.push(0);
    }
    put(&names, size, reply)
}

/// Replies with a value, or with its length if the caller has no room yet.
fn put(value: &[u8], size: u32, reply: &mut Reply<'_>) -> Outcome {
    if size == 0 {
        return reply.put(&GetxattrOut { size: value.len() as u32, padding: 0 });
    }
    if value.len() > size as usize {
        return Err(Errno::RANGE);
    }
    reply.put_bytes(value)
}
