//! Inodes themselves: the first pass, and the counting of links at the end.

use larder_btree::Readahead;
use larder_format::item::{DirEntries, DirLogItem, FileExtent, FileType, InodeItem};
use larder_format::objectid::ORPHAN;
use larder_format::{ItemType, Key, read_exact_item};

use crate::changed::Changed;
use crate::extents::items::FileExtents;
use crate::item::id::InodeId;
use crate::item::links::links_of_item;
use crate::log::replay::{Replay, bad, parse_inode, wrong};

/// Nanoseconds of a second.
const NANOSECONDS: u32 = 1_000_000_000;

impl Replay<'_> {
    /// First pass: gives an inode its logged state, and removes what the log knows to be gone.
    pub(super) fn replay_inode(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        if key.item_type != ItemType::INODE_ITEM {
            return Ok(());
        }
        let number = key.objectid;
        let (logged, file_type) = parse_inode(key, data)?;
        let there = self.inode(number)?;
        if there.is_some_and(|(_, there)| there != file_type) {
            return Err(wrong(key, "the inode is of another type"));
        }
        let running = self.recovery.handle().generation();
        if logged.generation.get() > running || logged.transid.get() > running {
            return Err(wrong(key, "it comes from a transaction that was not"));
        }
        let times = [logged.atime, logged.ctime, logged.mtime];
        if times.iter().any(|time| time.nsec.get() >= NANOSECONDS) {
            return Err(wrong(key, "one of its times has more nanoseconds than a second"));
        }
        self.remove_lost_xattrs(number)?;
        if file_type == FileType::Directory && there.is_some() {
            self.remove_lost_entries(number)?;
        }
        // Removed entries have changed the size of a directory.
        let there = self.inode(number)?.map(|(item, _)| item);
        let mut item = self.merged(there.as_ref(), logged, file_type);
        self.put_inode(number, &item)?;
        if file_type == FileType::Regular {
            // The log may preallocate the space after the end anew.
            let end = item.size.get().checked_next_multiple_of(self.sectorsize);
            let end = end.ok_or_else(|| wrong(key, "its size is beyond all offsets"))?;
            let dropped_bytes = self.file_extents(number).drop_range(end, u64::MAX)?;
            item.nbytes = item.nbytes.get().saturating_sub(dropped_bytes).into();
            self.put_inode(number, &item)?;
        }
        self.changed.insert(number);
        Ok(())
    }

    /// An inode's item after replay. Its sizes follow from its extents and entries; a generation of
    /// 0 says that the inode was logged only to exist.
    fn merged(
        &self,
        there: Option<&InodeItem>,
        logged: InodeItem,
        file_type: FileType,
    ) -> InodeItem {
        let mut item = logged;
        let is_in_part = logged.generation.get() == 0;
        match there {
            Some(there) if is_in_part => {
                item = *there;
                if file_type == FileType::Regular && logged.size.get() != 0 {
                    item.size = logged.size;
                }
            }
            Some(there) => {
                item.nbytes = there.nbytes;
                if file_type == FileType::Directory {
                    item.size = there.size;
                }
            }
            None => {
                item.nbytes = 0.into();
                if file_type == FileType::Directory {
                    item.size = 0.into();
                }
                if is_in_part {
                    item.generation = self.recovery.handle().generation().into();
                }
            }
        }
        item
    }

    pub(super) fn file_extents(&self, number: u64) -> FileExtents<'_> {
        let id = InodeId { subvolume: self.subvolume, number };
        let (handle, sectorsize) = (self.recovery.handle(), self.sectorsize);
        FileExtents { tree: &self.tree, id, live: None, handle, sectorsize }
    }

    /// Removes the attributes of an inode that the log does not have: it has all of them.
    fn remove_lost_xattrs(&self, number: u64) -> Changed<()> {
        for (key, data) in self.stored(number, ItemType::XATTR_ITEM, 0, u64::MAX)? {
            let logged = self.log.get(key)?;
            let logged = logged.as_deref().unwrap_or_default();
            let mut rest = Vec::new();
            for entry in DirEntries::new(&data) {
                let entry = entry.map_err(|problem| self.bad_own(key, problem))?;
                if has_name(key, logged, entry.name)? {
                    entry.write(&mut rest);
                }
            }
            if rest.is_empty() {
                self.tree.delete(key)?;
            } else if rest.len() < data.len() {
                self.tree.replace(key, &rest)?;
            }
        }
        Ok(())
    }

    /// Removes the entries of a directory that lie in ranges which the log covers and that are not
    /// in the log.
    fn remove_lost_entries(&mut self, directory: u64) -> Changed<()> {
        let of = |offset| Key::new(directory, ItemType::DIR_LOG_INDEX, offset);
        let mut ranges = Vec::new();
        let mut items = self.log.range(of(0)..=of(u64::MAX), Readahead::None);
        while let Some((key, data)) = items.next_item()? {
            let item: &DirLogItem = read_exact_item(data).map_err(|problem| bad(key, problem))?;
            ranges.push((key.offset, item.end.get()));
        }
        for (first, last) in ranges {
            for (key, data) in self.stored(directory, ItemType::DIR_INDEX, first, last)? {
                self.remove_unless_logged(key, &data)?;
            }
        }
        Ok(())
    }

    fn remove_unless_logged(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        let logged = self.log.get(key)?;
        for entry in DirEntries::new(data) {
            let entry = entry.map_err(|problem| self.bad_own(key, problem))?;
            if !has_name(key, logged.as_deref().unwrap_or_default(), entry.name)? {
                self.drop_entry(key.objectid, entry.name, entry.header.location.get())?;
            }
        }
        Ok(())
    }

    /// The items of an inode of the subvolume, of one type, with these offsets.
    fn stored(
        &self,
        number: u64,
        item_type: ItemType,
        first: u64,
        last: u64,
    ) -> Changed<Vec<(Key, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut cursor = self.tree.cursor(Readahead::None);
        let mut is_there = cursor.seek(Key::new(number, item_type, first))?;
        while let Some((key, data)) = cursor.item()
            && is_there
            && key <= Key::new(number, item_type, last)
        {
            found.push((key, data.to_vec()));
            is_there = cursor.next()?;
        }
        Ok(found)
    }

    /// Last: counts the names of changed inodes. One without a name becomes an orphan, and so do
    /// the contents of such a directory.
    pub(super) fn finish_inodes(&mut self) -> Changed<()> {
        while let Some(number) = self.changed.pop_last() {
            let Some((mut item, file_type)) = self.inode(number)? else { continue };
            if file_type == FileType::Symlink {
                self.require_target(number, &item)?;
            }
            let links = self.links(number)?;
            let key = Key::new(number, ItemType::INODE_ITEM, 0);
            if file_type == FileType::Directory && links > 1 {
                return Err(wrong(key, "it gives a directory a second name"));
            }
            if item.nlink.get() != links {
                item.nlink = links.into();
                self.put_inode(number, &item)?;
            }
            if links == 0 {
                for (key, data) in self.stored(number, ItemType::DIR_INDEX, 0, u64::MAX)? {
                    for entry in DirEntries::new(&data) {
                        let entry = entry.map_err(|problem| self.bad_own(key, problem))?;
                        self.drop_entry(key.objectid, entry.name, entry.header.location.get())?;
                    }
                }
                self.tree.put(Key::new(ORPHAN, ItemType::ORPHAN_ITEM, number), &[])?;
            }
        }
        Ok(())
    }

    fn require_target(&self, number: u64, item: &InodeItem) -> Changed<()> {
        let size = item.size.get();
        let extents = self.stored(number, ItemType::EXTENT_DATA, 0, u64::MAX)?;
        let is_target = match extents.as_slice() {
            [(key, data)] => match FileExtent::parse(data) {
                // mkfs.btrfs ends targets with a zero byte that the size does not count.
                Ok(FileExtent::Inline { header, data }) => {
                    key.offset == 0
                        && header.compression == 0
                        && [size, size.saturating_add(1)].contains(&(data.len() as u64))
                }
                _ => false,
            },
            _ => false,
        };
        if size == 0 || !is_target {
            let key = Key::new(number, ItemType::INODE_ITEM, 0);
            return Err(wrong(key, "a symbolic link without its target"));
        }
        Ok(())
    }

    fn links(&self, number: u64) -> Changed<u32> {
        let mut count = 0;
        for item_type in [ItemType::INODE_REF, ItemType::INODE_EXTREF] {
            for (key, data) in self.stored(number, item_type, 0, u64::MAX)? {
                links_of_item(key, &data, |_, _, _| count += 1)
                    .map_err(|problem| self.bad_own(key, problem))?;
            }
        }
        Ok(count)
    }
}

/// Whether one of the entries of a logged item has this name.
fn has_name(key: Key, entries: &[u8], name: &[u8]) -> Changed<bool> {
    for entry in DirEntries::new(entries) {
        if entry.map_err(|problem| bad(key, problem))?.name == name {
            return Ok(true);
        }
    }
    Ok(false)
}
