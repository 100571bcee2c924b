//! Every inode of a subvolume, in the order of its tree.
//!
//! A walk that follows directories jumps between a directory's items and those of its inodes. A
//! scan reads each leaf once instead, in order and read ahead, and several threads can each scan a
//! part of the inode numbers.

mod parts;
pub(crate) mod paths;

use std::ffi::OsStr;

use larder_btree::{Readahead, ViewCursor};
use larder_format::{ItemType, Key, objectid};
use larder_platform::OsStrExt;

use crate::error::Result;
use crate::handle::subvolume::Subvolume;
use crate::item::links::{Link, links_of_item};
use crate::item::metadata::{Metadata, parse_item};

pub use paths::Paths;

/// An inode that a [`Scan`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedInode {
    /// Its attributes.
    pub metadata: Metadata,
    /// Its names; none if it was unlinked while a program had it open and is not yet deleted.
    pub links: Vec<Link>,
}

/// Iterates over the inodes of a subvolume in the order of their numbers. After an error it goes on
/// with the next inode that can be read.
#[derive(Debug)]
pub struct Scan {
    subvolume: Subvolume,
    cursor: ViewCursor,
    state: State,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Before {
        first: u64,
    },
    /// At the next item to look at.
    At,
    Damaged,
}

impl Subvolume {
    /// All inodes of this subvolume, without nested subvolumes, with their attributes and names.
    ///
    /// This reads every leaf of the tree once and in order. To visit everything, it is much quicker
    /// than going from directory to directory.
    pub fn scan(&self) -> Scan {
        self.scan_between(objectid::FIRST_FREE, objectid::LAST_FREE)
    }

    /// The paths of the inodes of a scan of this subvolume.
    pub fn paths(&self) -> Paths {
        Paths::new(self.clone())
    }

    fn scan_between(&self, first: u64, last: u64) -> Scan {
        let cursor = self.view().cursor(Readahead::ForwardAlways);
        Scan { subvolume: self.clone(), cursor, state: State::Before { first }, last }
    }
}

impl Scan {
    fn advance(&mut self) -> Result<Option<ScannedInode>> {
        match std::mem::replace(&mut self.state, State::Damaged) {
            State::Before { first } => {
                self.subvolume.filesystem().flush_delayed()?;
                self.cursor.seek(Key::new(first, ItemType::INODE_ITEM, 0))?
            }
            State::At => true,
            State::Damaged => self.cursor.skip_subtree()?,
        };
        let Some(metadata) = self.next_inode()? else {
            self.state = State::At;
            return Ok(None);
        };
        let mut links = Vec::new();
        while self.cursor.next()?
            && let Some((key, bytes)) = self.cursor.item()
            && key.objectid == metadata.inode
            && matches!(key.item_type, ItemType::INODE_REF | ItemType::INODE_EXTREF)
        {
            links_of_item(key, bytes, |parent, index, name| {
                links.push(Link { parent, index, name: OsStr::from_bytes(name).to_owned() });
            })
            .map_err(|problem| self.subvolume.bad_item(key, problem))?;
        }
        self.state = State::At;
        Ok(Some(ScannedInode { metadata, links }))
    }

    /// Goes to the next inode item, from here on.
    fn next_inode(&mut self) -> Result<Option<Metadata>> {
        while let Some((key, bytes)) = self.cursor.item()
            && key.objectid <= self.last
        {
            if key.item_type == ItemType::INODE_ITEM {
                return metadata_of_item(&self.subvolume, key, bytes).map(Some);
            }
            // The other items of an inode may fill many leaves.
            self.cursor.seek(Key::new(key.objectid + 1, ItemType::INODE_ITEM, 0))?;
        }
        Ok(None)
    }
}

impl Iterator for Scan {
    type Item = Result<ScannedInode>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// The attributes in an inode item.
pub(crate) fn metadata_of_item(subvolume: &Subvolume, key: Key, bytes: &[u8]) -> Result<Metadata> {
    let (item, file_type) =
        parse_item(bytes).map_err(|problem| subvolume.bad_item(key, problem))?;
    let sectorsize = subvolume.filesystem().core().sectorsize();
    Ok(Metadata::new(subvolume.id(), key.objectid, file_type, item, sectorsize))
}
