//! Messages that a server sends the kernel without being asked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromZeros, IntoBytes};

use super::abi::{
    NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NotifyInvalEntryOut,
    NotifyInvalInodeOut, NotifyPruneOut, OutHeader,
};

/// One notification, as it is sent. Each makes the kernel forget something, so that sending it
/// twice does no more than sending it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Notice(Vec<u8>);

impl Notice {
    /// The kernel forgets attributes, and `len_bytes` of content from `offset` on, or all from
    /// there with 0.
    pub(crate) fn content(node: u64, offset: u64, len_bytes: u64) -> Self {
        let (off, len) = (offset as i64, len_bytes as i64);
        let inode = NotifyInvalInodeOut { ino: node, off, len };
        Self::new(NOTIFY_INVAL_INODE, &[inode.as_bytes()])
    }

    /// The kernel forgets attributes, and keeps content.
    pub(crate) fn attributes(node: u64) -> Self {
        let inode = NotifyInvalInodeOut { ino: node, off: -1, len: 0 };
        Self::new(NOTIFY_INVAL_INODE, &[inode.as_bytes()])
    }

    /// The kernel forgets what it knows about `name` in a directory.
    pub(crate) fn name(directory: u64, name: &OsStr) -> Self {
        let name = name.as_bytes();
        let entry = NotifyInvalEntryOut { parent: directory, namelen: name.len() as u32, flags: 0 };
        Self::new(NOTIFY_INVAL_ENTRY, &[entry.as_bytes(), name, b"\0"])
    }

    /// The kernel forgets what it knows about `name` in a directory, and about the directory. It
    /// waits for the lock of the directory. [`all_names`](Self::all_names) does not, and would
    /// unmount what is mounted below other names.
    pub(crate) fn name_and_directory(directory: u64, name: &OsStr) -> [Self; 2] {
        [Self::name(directory, name), Self::content(directory, 0, 0)]
    }

    /// The kernel forgets all names, and takes no lock for that. When it looks a name up again, it
    /// unmounts everything that is mounted below. Linux 6.16 and newer know this notice.
    pub(crate) fn all_names() -> Self {
        Self::new(NOTIFY_INC_EPOCH, &[])
    }

    /// The kernel drops those of `nodes` that are unused. Linux 6.18 and newer know this notice.
    pub(crate) fn unused(nodes: &[u64]) -> Self {
        let header = NotifyPruneOut { count: nodes.len() as u32, ..NotifyPruneOut::new_zeroed() };
        Self::new(NOTIFY_PRUNE, &[header.as_bytes(), nodes.as_bytes()])
    }

    fn new(code: i32, parts: &[&[u8]]) -> Self {
        let body = parts.concat();
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let header = OutHeader { len, error: code, unique: 0 };
        Self([header.as_bytes(), &*body].concat())
    }

    /// The bytes to send.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
