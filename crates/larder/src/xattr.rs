//! Extended attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::Result;
use crate::path;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The name with its namespace: `user.mime_type`, `system.posix_acl_access`.
    pub name: OsString,
    /// The value, as system calls give it.
    pub value: Vec<u8>,
}

/// Iterates over extended attributes. After an error it goes on with the next attribute that can be
/// read.
#[derive(Debug)]
pub struct Xattrs {
    inner: larder_filesystem::Xattrs,
}

impl Xattrs {
    pub(crate) fn new(inner: larder_filesystem::Xattrs) -> Self {
        Self { inner }
    }
}

impl Iterator for Xattrs {
    type Item = Result<Xattr>;

    fn next(&mut self) -> Option<Self::Item> {
        let xattr = |xattr: larder_filesystem::Xattr| Xattr {
            name: path::owned_name(xattr.name),
            value: xattr.value,
        };
        Some(self.inner.next()?.map(xattr))
    }
}

pub(crate) fn name_bytes(name: &OsStr) -> &[u8] {
    name.as_bytes()
}
