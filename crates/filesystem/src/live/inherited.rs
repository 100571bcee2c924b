//! Inheriting from a directory.

use larder_format::item::{InodeFlags, InodeItem};

use crate::item::acl;
use crate::item::acl::Acl;
use crate::item::metadata::FileType;
use crate::item::new::NewInode;
use crate::item::property::COMPRESSION;

/// The bits of a mode that ACLs and a umask change.
const PERMISSIONS: u32 = 0o777;

pub(crate) const S_ISGID: u32 = 0o2000;
/// The flags that new inodes inherit.
pub(crate) const PASSED_ON: InodeFlags =
    InodeFlags::COMPRESS.union(InodeFlags::NOCOMPRESS).union(InodeFlags::NODATACOW);

/// What new inodes inherit from a directory's extended attributes.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) default_acl: Option<Acl>,
    pub(crate) compression: Option<&'static [u8]>,
}

impl Inherited {
    /// Gives the item of a new inode, created as `new` says, what it inherits from `directory`.
    /// Returns the names and values of its extended attributes.
    pub(crate) fn pass_on(
        &self,
        new: &NewInode,
        file_type: FileType,
        directory: &InodeItem,
        item: &mut InodeItem,
    ) -> Vec<(&'static [u8], Vec<u8>)> {
        let mut attributes = Vec::new();
        let is_directory = file_type == FileType::Directory;
        if directory.mode.get() & S_ISGID != 0 {
            item.gid = directory.gid;
            item.mode = (new.mode | if is_directory { S_ISGID } else { 0 }).into();
        }
        let mut flags = directory.flags() & PASSED_ON;
        let is_regular = file_type == FileType::Regular;
        flags.set(InodeFlags::NODATASUM, is_regular && flags.contains(InodeFlags::NODATACOW));
        item.flags = flags.bits().into();
        if (is_regular || is_directory)
            && let Some(compression) = self.compression
        {
            attributes.push((COMPRESSION, compression.to_vec()));
        }
        match &self.default_acl {
            _ if file_type == FileType::Symlink => {}
            None => item.mode = (item.mode.get() & !(new.umask & PERMISSIONS)).into(),
            Some(default) => {
                let mut access = default.clone();
                access.restrict(item.mode.get());
                item.mode = (item.mode.get() & !PERMISSIONS | access.permissions()).into();
                if !access.is_mode() {
                    attributes.push((acl::ACCESS, access.to_bytes()));
                }
                if is_directory {
                    attributes.push((acl::DEFAULT, default.to_bytes()));
                }
            }
        }
        attributes
    }
}
