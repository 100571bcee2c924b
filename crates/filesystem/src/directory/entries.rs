//! Listing a directory.

use std::collections::VecDeque;

use larder_btree::{Range, Readahead};
use larder_format::item::DirEntries;
use larder_format::{FormatError, ItemType};

use crate::directory::entry::{DirEntry, Entry};
use crate::directory::hashed::{FIRST_POSITION, Hashed};
use crate::directory::listed::Listed;
use crate::directory::walk::Walk;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;

/// Iterates over the entries of a directory in the order of their creation, without `.` and `..`.
/// After an error it goes on with the next entry that can be read.
///
/// If the directory changes meanwhile, entries that exist all the time are listed once.
#[derive(Debug)]
pub struct Entries {
    directory: Directory,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The index items of a directory that does not change.
    Committed(Range),
    /// Its hash entries, if the index may be damaged.
    Hashed(Box<Hashed>),
    /// Entries as they are at one moment, and the index of the rest.
    Live { seen: VecDeque<Result<DirEntry>>, next: Option<u64> },
}

impl Directory {
    /// Everything below this directory.
    pub fn walk(&self) -> Walk {
        Walk::below(self)
    }

    /// All entries.
    pub fn entries(&self) -> Result<Entries> {
        self.entries_from(0)
    }

    /// The entries whose [`Entry::index`] is `index` or greater. To continue a listing, pass the
    /// index of the last entry plus one. All indexes are above 1.
    ///
    /// # Errors
    /// `ENOENT` for the root of a deleted subvolume.
    pub fn entries_from(&self, index: u64) -> Result<Entries> {
        self.check_not_removed()?;
        let source = if self.try_live_inode().is_some() {
            Source::Live { seen: VecDeque::new(), next: Some(index) }
        } else if index >= FIRST_POSITION && self.may_lack_index() {
            Source::Hashed(Hashed::of(self, index).into())
        } else {
            // A directory that stands for a subvolume has no items: its number is that of no inode.
            Source::Committed(self.index_items(index))
        };
        Ok(Entries { directory: self.clone(), source })
    }

    /// The index items from `index` on.
    pub(super) fn index_items(&self, index: u64) -> Range {
        let key = |index| self.key(ItemType::DIR_INDEX, index);
        self.subvolume().view().range(key(index)..=key(u64::MAX), Readahead::Forward)
    }

    /// Whether readers also take names that the index does not have.
    pub(super) fn may_lack_index(&self) -> bool {
        self.try_live_inode().is_none() && self.core().volume().rescue().ignore_bad_roots
    }

    /// Up to `most` of the entries whose [`Entry::index`] is `index` or greater, with the
    /// attributes of their inodes: far less work than [`Entry::open`] for each. The entries are
    /// those of one moment.
    ///
    /// # Errors
    /// As [`entries_from`](Self::entries_from).
    pub fn list_with_inodes(&self, index: u64, most: usize) -> Result<Listed> {
        Listed::read(self, index, most)
    }

    /// The index that the next name will have: entries with a lower one existed before this call.
    pub fn end_index(&self) -> Result<u64> {
        let Some(live) = self.try_live_inode() else { return Ok(u64::MAX) };
        Ok(live.end_index(&mut live.write())?)
    }

    /// The index of the entry `name` of this directory.
    pub(crate) fn index_of(&self, name: &[u8]) -> Result<u64> {
        let (mut next, mut found) = (Some(0), None);
        while let Some(from) = next
            && found.is_none()
        {
            next = self.visit_entries(from, |entry| match entry {
                Ok(entry) if entry.name != name => {}
                entry => {
                    found.get_or_insert(entry);
                }
            });
        }
        found.ok_or(Error::NotFound)?.map(|entry| entry.index)
    }

    /// Calls `visit` with some entries from the index `from` on, as they are at one moment if the
    /// caller holds the state of the directory's inode. Returns the index of the rest.
    pub(super) fn visit_entries(
        &self,
        from: u64,
        mut visit: impl FnMut(Result<DirEntry>),
    ) -> Option<u64> {
        self.try_live_inode()?.visit_index(from, |item| {
            let entry = item.map_err(Error::from);
            visit(entry.and_then(|(index, bytes)| self.parse_entry(index, bytes)));
        })
    }

    pub(super) fn parse_entry(&self, index: u64, item: &[u8]) -> Result<DirEntry> {
        let mut entries = DirEntries::new(item);
        let entry = match (entries.next(), entries.next()) {
            (Some(Ok(entry)), None) => DirEntry::from_item(index, &entry),
            (Some(Err(problem)), _) => Err(problem),
            _ => Err(FormatError::invalid("directory index", "it has not exactly one entry")),
        };
        let key = self.key(ItemType::DIR_INDEX, index);
        entry.map_err(|problem| self.subvolume().bad_item(key, problem))
    }
}

impl Entries {
    pub(super) fn advance(&mut self) -> Result<Option<DirEntry>> {
        let directory = &self.directory;
        match &mut self.source {
            Source::Committed(items) => {
                if let Some((key, bytes)) = items.next_item()? {
                    return directory.parse_entry(key.offset, bytes).map(Some);
                }
                if !directory.may_lack_index() {
                    return Ok(None);
                }
                let mut hashed = Hashed::of(directory, 0);
                let entry = hashed.advance(directory);
                self.source = Source::Hashed(hashed.into());
                entry
            }
            Source::Hashed(hashed) => hashed.advance(directory),
            Source::Live { seen, next } => {
                while seen.is_empty()
                    && let Some(from) = *next
                {
                    *next = directory.while_unchanged(|| {
                        directory.visit_entries(from, |entry| seen.push_back(entry))
                    });
                }
                seen.pop_front().transpose()
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.advance().transpose()?;
        Some(found.map(|found| Entry { directory: self.directory.clone(), found }))
    }
}
