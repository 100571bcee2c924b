//! Listing a directory.

use larder_btree::{Range, Readahead};
use larder_format::item::DirEntries;
use larder_format::{FormatError, ItemType};

use super::DirEntry;
use crate::error::Result;
use crate::inode::Inode;
use crate::subvolume::Subvolume;

/// Iterates over the entries of a directory in the order of their indexes, which is that of their
/// making. After an error it goes on behind what cannot be read.
#[derive(Debug)]
pub struct Entries {
    subvolume: Subvolume,
    items: Range,
}

impl Inode {
    /// The entries of the directory whose index is `index` or greater, neither `.` nor `..` among
    /// them. All indexes are above 1.
    pub fn entries_from(&self, index: u64) -> Result<Entries> {
        self.expect_directory()?;
        // What stands for a subvolume has no items: its number is that of no inode.
        let range = self.key(ItemType::DIR_INDEX, index)..=self.key(ItemType::DIR_INDEX, u64::MAX);
        let subvolume = self.subvolume().clone();
        let items = subvolume.view().range(range, Readahead::Forward);
        Ok(Entries { subvolume, items })
    }

    /// All entries of the directory.
    pub fn entries(&self) -> Result<Entries> {
        self.entries_from(0)
    }
}

impl Entries {
    fn advance(&mut self) -> Result<Option<DirEntry>> {
        let Some((key, bytes)) = self.items.next_item()? else { return Ok(None) };
        let mut entries = DirEntries::new(bytes);
        let parse = |entries: &mut DirEntries<'_>| match (entries.next(), entries.next()) {
            (Some(Ok(entry)), None) => DirEntry::from_item(key.offset, &entry),
            (Some(Err(problem)), _) => Err(problem),
            _ => Err(FormatError::invalid("directory index", "it has not exactly one entry")),
        };
        let entry = parse(&mut entries).map_err(|problem| self.subvolume.bad_item(key, problem))?;
        Ok(Some(entry))
    }
}

impl Iterator for Entries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
