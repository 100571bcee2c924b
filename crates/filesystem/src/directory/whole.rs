//! New inodes, complete in one step, for a receiver of streams.

use std::ffi::OsStr;
use std::mem;

use larder_format::item::InodeItem;
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, name_hash};
use larder_platform::OsStrExt;

use crate::directory::create::{Draft, check_target};
use crate::error::{Error, Result};
use crate::file::write::{WriteAs, WriteSpace};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::inode::attributes::SetAttributes;
use crate::item::attribute::attribute;
use crate::item::metadata::FileType;
use crate::item::new::{NewInode, NewItem, inline_item, new_item};
use crate::xattr::capability::check_capability;
use crate::xattr::set::check_plain_xattr;

/// Items of a new inode and its name, besides extended attributes: inode and reference, extent,
/// entry and index, and the directory's inode.
const WHOLE_ITEMS: u64 = 6;

/// The most data of a file that is created in one step, in bytes.
pub const MOST_WHOLE_BYTES: usize = 256 << 10;

/// A complete new inode. It inherits nothing from its directory.
#[derive(Clone, Debug)]
pub struct WholeInode<'a> {
    /// Type, permissions, owner, device number.
    pub new: NewInode,
    /// Attributes that differ from that, and times other than now. No flags.
    pub attributes: &'a SetAttributes,
    /// Extended attributes, each once: names with the namespace `user`, `trusted` or `security`,
    /// and values. Attributes with a meaning of their own are set later.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// The target of a symbolic link, or all data of a regular file, of at most
    /// [`MOST_WHOLE_BYTES`].
    pub content: Vec<u8>,
}

impl WholeInode<'_> {
    /// Creates the inode as `name` in `directory`, complete with attributes and content, in
    /// one step. Data that does not go into the tree is durable after a sync, as after
    /// [`write_at`](crate::File::write_at).
    ///
    /// # Errors
    /// As [`create_child`](Directory::create_child), [`symlink_child`](Directory::symlink_child),
    /// [`set_attributes`](Inode::set_attributes) and [`set_xattr`](Inode::set_xattr). After an
    /// error nothing was created, and this still has its content, which the inode takes
    /// otherwise; but if the transaction was aborted, the file may lack its data.
    #[doc(hidden)]
    pub fn create_in(&mut self, directory: &Directory, name: &OsStr) -> Result<Inode> {
        let file_type = self.new.file_type()?;
        check_whole(directory, file_type, self)?;
        let is_inline = file_type != FileType::Regular
            || self.content.len() as u64 <= directory.core().most_inline_bytes();
        let space = if is_inline {
            None
        } else {
            Some(WriteSpace::for_new(directory.core(), directory.subvolume().id(), &self.content)?)
        };
        let items = WHOLE_ITEMS + self.xattrs.len() as u64;
        let inode =
            directory.make_drafted(name.as_bytes(), items, |changeable, _, generation| {
                let number = changeable.subvolume.inode_numbers.next()?;
                let mut items = xattr_items(directory, number, generation, self.xattrs)?;
                let inline = (is_inline && !self.content.is_empty()).then_some(&self.content[..]);
                items.extend(inline.map(|data| inline_item(number, generation, data)));
                let mut item: InodeItem = new_item(&self.new, generation, inline);
                self.attributes.put(&mut item);
                Ok(Draft { number, file_type, item, items })
            })?;
        let content = mem::take(&mut self.content);
        if let Some(space) = space {
            let as_new = WriteAs { is_open: true, sets_times: false };
            inode.clone().into_file()?.write_in(space, content.into(), 0, as_new)?;
        }
        Ok(inode)
    }
}

/// Refuses inodes that cannot be created in `directory` in one step.
fn check_whole(directory: &Inode, file_type: FileType, whole: &WholeInode<'_>) -> Result<()> {
    match file_type {
        FileType::Symlink => check_target(directory, &whole.content)?,
        FileType::Regular if whole.content.len() > MOST_WHOLE_BYTES => {
            return Err(Error::Invalid("more data than is written in one step"));
        }
        FileType::Regular => {}
        _ if !whole.content.is_empty() => return Err(Error::NotAFile),
        _ => {}
    }
    whole.attributes.check_times()?;
    if whole.attributes.flags.is_some() {
        return Err(Error::Invalid("flags are set once it is made"));
    }
    whole.xattrs.iter().try_for_each(|(name, value)| {
        check_plain_xattr(file_type, name)?;
        check_capability(name, value)
    })
}

/// The items of extended attributes: attributes of the same hash share one.
fn xattr_items(
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
