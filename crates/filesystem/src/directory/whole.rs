//! New inodes, complete in one step, for a receiver of streams.

use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, name_hash};

use crate::directory::create::check_target;
use crate::directory::handle::Directory;
use crate::error::{Error, Result};
use crate::inode::attributes::SetAttributes;
use crate::inode::handle::Inode;
use crate::inode::inheritance::inherited;
use crate::inode::inherited::{Inherited, PASSED_ON, S_ISGID};
use crate::inode::metadata::FileType;
use crate::inode::new::{NewInode, NewItem};
use crate::xattr::item::attribute;
use crate::xattr::set::check_plain_xattr;

/// Items of a new inode and its name, besides extended attributes: inode and reference, extent,
/// entry and index, and the directory's inode.
pub(crate) const WHOLE_ITEMS: u64 = 6;

/// A complete new inode. It inherits nothing from its directory.
#[derive(Clone, Copy, Debug)]
pub struct WholeInode<'a> {
    /// Type, permissions, owner, device number.
    pub new: NewInode,
    /// Attributes that differ from that, and times other than now. No flags.
    pub attributes: &'a SetAttributes,
    /// Extended attributes, each once: names with the namespace `user`, `trusted` or `security`,
    /// and values. Attributes with a meaning of their own are set later.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// The target of a symbolic link, or all data of a regular file, of at most
    /// [`most_inline_bytes`](crate::Filesystem::most_inline_bytes).
    pub content: &'a [u8],
}

impl Directory {
    /// Whether a new inode in this directory would inherit anything: from the directory, or from
    /// the options for new files.
    #[doc(hidden)]
    pub fn passes_something_on(&self) -> Result<bool> {
        let live = self.live_inode()?;
        let Inherited { default_acl, compression } = &*inherited(self, &mut live.write())?;
        let item = self.item();
        Ok(default_acl.is_some()
            || compression.is_some()
            || item.mode.get() & S_ISGID != 0
            || item.flags().intersects(PASSED_ON)
            || !self.core().write_policy().flags_of(FileType::Regular).is_empty())
    }
}

/// Refuses inodes that cannot be created in `directory` in one step.
pub(crate) fn check_whole(
    directory: &Inode,
    file_type: FileType,
    whole: &WholeInode<'_>,
) -> Result<()> {
    let len_bytes = whole.content.len() as u64;
    let most_inline_bytes = directory.core().most_inline_bytes();
    match file_type {
        FileType::Symlink => check_target(directory, whole.content)?,
        FileType::Regular if len_bytes > most_inline_bytes => {
            return Err(Error::Invalid("data that does not go into the tree"));
        }
        FileType::Regular => {}
        _ if len_bytes > 0 => return Err(Error::NotAFile),
        _ => {}
    }
    whole.attributes.check_times()?;
    if whole.attributes.flags.is_some() {
        return Err(Error::Invalid("flags are set once it is made"));
    }
    whole.xattrs.iter().try_for_each(|(name, _)| check_plain_xattr(file_type, name))
}

/// The items of extended attributes: attributes of the same hash share one.
pub(crate) fn xattr_items(
    directory: &Inode,
    number: u64,
    generation: u64,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> Result<Vec<NewItem>> {
    let nodesize = directory.core().volume().nodesize() as usize;
    let most = leaf_data_size(nodesize) - ITEM_HEADER_SIZE;
    let mut items: Vec<NewItem> = Vec::new();
    for (name, value) in xattrs {
        let key = Key::new(number, ItemType::XATTR_ITEM, name_hash::dir_name(name));
        let place = items.iter().position(|(known, _)| *known == key);
        let place = place.unwrap_or_else(|| {
            items.push((key, Vec::new()));
            items.len() - 1
        });
        if value.len() > most {
            return Err(Error::AttributeTooLarge);
        }
        let data = &mut items[place].1;
        data.extend(attribute(generation, name, value));
        if data.len() > most {
            return Err(Error::AttributeTooLarge);
        }
    }
    Ok(items)
}
