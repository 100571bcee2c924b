//! Making inodes with all that they have at once, and giving short files other content and times at once, as a
//! receiver does.

use larder_format::item::{InodeFlags, InodeItem};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key, name_hash};

use crate::directory::create::Draft;
use crate::error::{Error, Result};
use crate::file::writeback::compression::compression_plan;
use crate::inode::attributes::SetAttributes;
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;
use crate::inode::new::{NewInode, NewItem, inline_item, new_item};
use crate::operation::data_reservation::reserve_within_quota;
use crate::operation::file_change::FileChange;
use crate::xattr::item::attribute;
use crate::xattr::set::check_plain_xattr;

/// Items that a new inode and its name take besides its extended attributes: inode and reference,
/// extent, entry and index, and the directory's inode.
const ITEMS: u64 = 6;

/// An inode and all that it is to have. It takes nothing over from its directory.
#[derive(Clone, Copy, Debug)]
pub struct WholeInode<'a> {
    /// Type, permissions, owner, device number.
    pub new: NewInode,
    /// What is to be different from that, and times that are not now. No flags.
    pub attributes: &'a SetAttributes,
    /// Extended attributes, none twice: names with the namespace `user`, `trusted` or `security`, and
    /// values. Others mean more than what they say, and are set once it is made.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// The target of a symbolic link, or all data of a regular file, of at most
    /// [`most_inline_bytes`](crate::Filesystem::most_inline_bytes).
    pub content: &'a [u8],
}

impl Inode {
    /// Makes an inode named `name` in this directory, with all that it has, in one step.
    ///
    /// # Errors
    /// As [`create`](Self::create), [`symlink`](Self::symlink), [`set_attributes`](Self::set_attributes)
    /// and [`set_xattr`](Self::set_xattr). After an error nothing was made.
    pub fn create_whole(&self, name: &[u8], whole: &WholeInode<'_>) -> Result<Self> {
        let file_type = whole.new.file_type()?;
        self.check_whole(file_type, whole)?;
        let items = ITEMS + whole.xattrs.len() as u64;
        self.make_drafted(name, items, |_, generation| {
            let number = self.subvolume().live()?.inode_numbers.next()?;
            let mut items = self.xattr_items(number, generation, whole.xattrs)?;
            let content = (!whole.content.is_empty()).then_some(whole.content);
            items.extend(content.map(|content| inline_item(number, generation, content)));
            let mut item: InodeItem = new_item(&whole.new, generation, content);
            whole.attributes.put(&mut item);
            Ok(Draft { number, file_type, item, items })
        })
    }

    /// Gives this regular file other content, all of it, and other times, in one step, if it is short and
    /// stays so: what it has is in the tree, and what it gets goes there. Returns whether that was so: if not,
    /// at most its capabilities are gone, and [`write_at`](Self::write_at) and the like do it.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). After an error its content and times are what they were.
    pub fn rewrite(&self, content: &[u8], times: &SetAttributes) -> Result<bool> {
        self.writer_of_file()?;
        let (live, core) = (self.live_inode()?, self.core());
        times.check_times()?;
        let len_bytes = content.len() as u64;
        if content.is_empty() || len_bytes > core.most_inline_bytes() || !times.are_times() {
            return Ok(false);
        }
        self.drop_capability()?;
        let reservation = reserve_within_quota(self.core(), self.subvolume().id(), 0, 1)?;
        let change = FileChange::start(self.core(), self.subvolume().live()?, [live], reservation)?;
        let mut file = change.lock(live);
        let _alone = file.exclude_readers();
        file.check_may_cut()?;
        let extents = file.extents();
        let sectorsize = core.sectorsize();
        if !file.is_clean()
            || file.size_bytes > sectorsize
            || file.item.flags().contains(InodeFlags::NODATACOW)
            || compression_plan(core, live, &file)?.is_some()
            || extents.has_any_from(sectorsize)?
        {
            return Ok(false);
        }
        file.apply(|file| {
            let dropped_bytes = extents.drop_range(0, sectorsize)?;
            extents.insert_inline(content, len_bytes, None)?;
            file.touch(change.handle().generation(), true);
            file.size_bytes = len_bytes;
            let nbytes = file.item.nbytes.get().saturating_sub(dropped_bytes) + len_bytes;
            (file.item.size, file.item.nbytes) = (len_bytes.into(), nbytes.into());
            times.put(&mut file.item);
            live.write_items(file)
        })?;
        drop(file);
        change.end()?;
        Ok(true)
    }

    fn check_whole(&self, file_type: FileType, whole: &WholeInode<'_>) -> Result<()> {
        let len_bytes = whole.content.len() as u64;
        let most_inline_bytes = self.core().most_inline_bytes();
        match file_type {
            FileType::Symlink => self.check_target(whole.content)?,
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

    /// The items of extended attributes: those of one hash share one.
    fn xattr_items(
        &self,
        number: u64,
        generation: u64,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Vec<NewItem>> {
        let nodesize = self.core().volume().nodesize() as usize;
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
}
