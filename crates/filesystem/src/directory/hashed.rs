//! Names of a directory from its hash entries, where its index is damaged.
//!
//! # Invariants
//! - Only readers that do without trees ([`Rescue::ignore_bad_roots`]) see them, after the names of
//!   the index, and no name twice.
//! - Each has a position above all indexes. Positions rise, and follow from the item, so that a
//!   listing can go on at any of them.
//!
//! [`Rescue::ignore_bad_roots`]: larder_volume::Rescue::ignore_bad_roots

use std::collections::{HashSet, VecDeque};

use larder_btree::{Range, Readahead};
use larder_format::ItemType;
use larder_format::item::DirEntries;

use crate::directory::entry::DirEntry;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;

/// The first position of a name without an index.
pub(super) const FIRST_POSITION: u64 = 1 << 62;

/// The names that the index of a directory does not have.
#[derive(Debug)]
pub(super) struct Hashed {
    items: Range,
    /// The names that were listed.
    listed: HashSet<Vec<u8>>,
    /// Whether the index could be read, so that the hash entries have nothing to add but what it
    /// lacks.
    has_whole_index: bool,
    ready: VecDeque<DirEntry>,
    /// Positions before this one are left out.
    from: u64,
}

impl Hashed {
    /// The names of `directory` from the position `from` on.
    pub(super) fn of(directory: &Directory, from: u64) -> Self {
        let (mut listed, mut has_whole_index) = (HashSet::new(), true);
        let mut index = directory.index_items(0);
        loop {
            match index.next_item().map_err(Error::from) {
                Ok(None) => break,
                Ok(Some((key, bytes))) => match directory.parse_entry(key.offset, bytes) {
                    Ok(entry) => drop(listed.insert(entry.name)),
                    Err(_) => has_whole_index = false,
                },
                Err(_) => has_whole_index = false,
            }
        }
        let key = |hash| directory.key(ItemType::DIR_ITEM, hash);
        let range = key(0)..=key(u64::from(u32::MAX));
        let items = directory.subvolume().view().range(range, Readahead::Forward);
        Self { items, listed, has_whole_index, ready: VecDeque::new(), from }
    }

    pub(super) fn advance(&mut self, directory: &Directory) -> Result<Option<DirEntry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            let (key, bytes) = match self.items.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => return Ok(None),
                Err(_) if self.has_whole_index => continue,
                Err(error) => return Err(error.into()),
            };
            for (number, entry) in (0..).zip(DirEntries::new(bytes)) {
                let position = FIRST_POSITION + (key.offset << 16) + number;
                let entry = entry.and_then(|entry| DirEntry::from_item(position, &entry));
                match entry {
                    Ok(entry) if position < self.from => drop(self.listed.insert(entry.name)),
                    Ok(entry) => {
                        if self.listed.insert(entry.name.clone()) {
                            self.ready.push_back(entry);
                        }
                    }
                    Err(_) if self.has_whole_index => {}
                    Err(problem) => return Err(directory.subvolume().bad_item(key, problem)),
                }
            }
        }
    }
}
