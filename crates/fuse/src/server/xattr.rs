//! Extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder::{ErrorKind, SetAttributes, XattrMode};
use rustix::io::Errno;

use super::attributes::PERMISSIONS;
use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{GetxattrOut, SETXATTR_ACL_KILL_SGID};

/// The label of a file for SELinux.
const SELINUX_LABEL: &str = "security.selinux";
/// Is there if the kernel runs SELinux.
const SELINUX: &str = "/sys/fs/selinux";
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const XATTR_CREATE_AND_REPLACE: u32 = XATTR_CREATE | XATTR_REPLACE;
const S_ISGID: u32 = 0o2000;

impl Server {
    pub(super) fn set_xattr(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        setxattr_flags: u32,
    ) -> Outcome {
        let node = self.node(call)?;
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            // It must be there and must not: which of both is missing is the error, as on btrfs.
            XATTR_CREATE_AND_REPLACE => {
                let found = node.inode.xattr(name).map_err(failed);
                return Err(found.err().unwrap_or(Errno::EXIST));
            }
            _ => return Err(Errno::INVAL),
        };
        node.inode.set_xattr(name, value, mode).map_err(failed)?;
        node.has_new_attribute();
        if setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            let permissions = Some(node.inode.metadata().mode & PERMISSIONS & !S_ISGID);
            let changes = SetAttributes { permissions, ..SetAttributes::default() };
            node.inode.set_attributes(&changes).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn remove_xattr(&self, call: &Call<'_>, name: &OsStr) -> Outcome {
        self.node(call)?.inode.remove_xattr(name).map_err(failed)
    }

    pub(super) fn get_xattr(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        size: u32,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let value = self.node(call)?.inode.xattr(name).map_err(|error| {
            let has_no_label = name == SELINUX_LABEL && error.kind() == ErrorKind::NoSuchAttribute;
            if has_no_label && !self.has_selinux { Errno::OPNOTSUPP } else { failed(error) }
        })?;
        put(&value, size, reply)
    }

    pub(super) fn list_xattr(&self, call: &Call<'_>, size: u32, reply: &mut Reply<'_>) -> Outcome {
        let mut names = Vec::new();
        for xattr in self.node(call)?.inode.xattrs() {
            names.extend_from_slice(xattr.map_err(failed)?.name.as_bytes());
            names.push(0);
        }
        put(&names, size, reply)
    }
}

/// Whether the kernel runs SELinux. If not, the error for a label that is not there is that of a file
/// system without labels: then `ls -l` and others ask for that of one file, and not for those of all.
pub(super) fn has_selinux() -> bool {
    Path::new(SELINUX).exists()
}

/// Replies with a value, or with its length to who has no room yet.
fn put(value: &[u8], size: u32, reply: &mut Reply<'_>) -> Outcome {
    if size == 0 {
        return reply.put(&GetxattrOut { size: value.len() as u32, padding: 0 });
    }
    if value.len() > size as usize {
        return Err(Errno::RANGE);
    }
    reply.put_bytes(value)
}
