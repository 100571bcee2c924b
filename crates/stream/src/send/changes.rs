//! The inodes that differ between the parent and the snapshot.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use larder_filesystem::{Error, Subvolume};
use larder_format::item::InodeItem;
use larder_format::{FormatError, ItemType, Key, objectid, read_exact_item};

use super::ahead::fetching_ahead;
use super::lockstep::compare;
use super::record::{bad_item, live_type};

/// An inode that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) ino: u64,
    pub(super) kind: Kind,
    /// The inode in the parent, if the parent has this number.
    pub(super) was: Option<InodeItem>,
    /// Whether it may have other names than before, or the same in a directory that was replaced.
    pub(super) names: bool,
    /// Whether extended attributes differ.
    pub(super) xattrs: bool,
    /// The offsets of the first and last extent that differ.
    pub(super) extents: Option<RangeInclusive<u64>>,
}

/// The kind of change of an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only the snapshot has it.
    Made,
    /// Only the parent has it.
    Removed,
    /// It is another inode than before.
    Replaced,
    /// It is the same inode, changed.
    Changed,
}

/// The inodes to send.
#[derive(Debug)]
pub(super) enum Changes {
    /// Everything: there is no parent.
    Everything,
    /// These, in order of number.
    Some(Vec<Change>),
}

impl Changes {
    /// The differences between `new` and its parent `old`. Costs time for the changes, not for the
    /// content. `readers` threads besides this one read blocks.
    pub(super) fn between(
        old: &Subvolume,
        new: &Subvolume,
        readers: NonZeroUsize,
    ) -> Result<Self, Error> {
        let mut finder = Finder { old, new, changes: Vec::new() };
        fetching_ahead(readers, |ahead| {
            compare(old.tree(), new.tree(), ahead, |key, old, new| finder.add(key, old, new))
        })?;
        let found = finder.changes.into_iter();
        let mut changes: Vec<Change> = found.filter_map(InodeDifference::finish).collect();
        // Names in a replaced directory are new, though they look the same.
        if changes.iter().any(|change| change.kind == Kind::Replaced) {
            for change in &mut changes {
                change.names = true;
            }
        }
        Ok(Self::Some(changes))
    }

    /// Whether the stream makes the inode with this number in the snapshot.
    pub(super) fn is_made(&self, ino: u64) -> bool {
        let kind = |change: &Change| matches!(change.kind, Kind::Made | Kind::Replaced);
        self.get(ino).map_or(matches!(self, Self::Everything), kind)
    }

    /// Whether the inode with this number in the parent is also in the snapshot.
    pub(super) fn is_kept(&self, ino: u64) -> bool {
        let kind = |change: &Change| matches!(change.kind, Kind::Changed);
        self.get(ino).is_none_or(kind)
    }

    /// Whether the inode with this number in the snapshot is sent, in full or in part.
    pub(super) fn is_changed(&self, ino: u64) -> bool {
        matches!(self, Self::Everything) || self.get(ino).is_some()
    }

    fn get(&self, ino: u64) -> Option<&Change> {
        let Self::Some(changes) = self else { return None };
        let at = changes.binary_search_by_key(&ino, |change| change.ino).ok()?;
        Some(&changes[at])
    }
}

/// The differences of one inode.
struct InodeDifference {
    ino: u64,
    was: Option<InodeItem>,
    exists: bool,
    is_same: bool,
    names: bool,
    xattrs: bool,
    extents: Option<RangeInclusive<u64>>,
}

impl InodeDifference {
    fn new(ino: u64, was: Option<InodeItem>, exists: bool, is_same: bool) -> Self {
        Self { ino, was, exists, is_same, names: false, xattrs: false, extents: None }
    }

    /// The change, unless neither snapshot has the inode.
    fn finish(self) -> Option<Change> {
        let Self { ino, was, exists, is_same, names, xattrs, extents } = self;
        let kind = match (was.is_some(), exists) {
            (true, true) if is_same => Kind::Changed,
            (true, true) => Kind::Replaced,
            (true, false) => Kind::Removed,
            (false, true) => Kind::Made,
            (false, false) => return None,
        };
        Some(Change { ino, kind, was, names, xattrs, extents })
    }
}

struct Finder<'a> {
    old: &'a Subvolume,
    new: &'a Subvolume,
    changes: Vec<InodeDifference>,
}

impl Finder<'_> {
    fn add(&mut self, key: Key, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), Error> {
        if !(objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&key.objectid) {
            return Ok(());
        }
        match key.item_type {
            ItemType::INODE_ITEM => self.add_inode(key, old, new),
            ItemType::INODE_REF | ItemType::INODE_EXTREF => {
                self.found(key.objectid)?.names = true;
                Ok(())
            }
            ItemType::XATTR_ITEM => {
                self.found(key.objectid)?.xattrs = true;
                Ok(())
            }
            ItemType::EXTENT_DATA => {
                let found = self.found(key.objectid)?;
                let first = found.extents.as_ref().map_or(key.offset, |range| *range.start());
                found.extents = Some(first..=key.offset);
                Ok(())
            }
            // The references of a directory's entries tell the same as its lists.
            _ => Ok(()),
        }
    }

    fn add_inode(&mut self, key: Key, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), Error> {
        let before = inode_of(self.old, key, old)?;
        let now = inode_of(self.new, key, new)?;
        let is_same = match (&before, &now) {
            (Some(before), Some(now)) => self.is_same(key.objectid, before, now)?,
            _ => false,
        };
        self.changes.push(InodeDifference::new(key.objectid, before, now.is_some(), is_same));
        Ok(())
    }

    /// Whether the inodes with one number in both trees are one inode, which may have changed. A
    /// symbolic link or a device node can only be made anew.
    fn is_same(&self, ino: u64, before: &InodeItem, now: &InodeItem) -> Result<bool, Error> {
        const TYPE_BITS: u32 = 0o170_000;
        const SYMLINK: u32 = 0o120_000;
        if ino == objectid::FIRST_FREE {
            return Ok(true);
        }
        let parts = |item: &InodeItem| {
            (item.generation.get(), item.mode.get() & TYPE_BITS, item.rdev.get())
        };
        if parts(before) != parts(now) {
            return Ok(false);
        }
        if now.mode.get() & TYPE_BITS != SYMLINK {
            return Ok(true);
        }
        let target = |subvolume: &Subvolume| subvolume.inode(ino)?.link_target();
        Ok(target(self.old)? == target(self.new)?)
    }

    /// The change that an item of `ino` belongs to. The inode item comes first if it differs.
    fn found(&mut self, ino: u64) -> Result<&mut InodeDifference, Error> {
        if self.changes.last().is_none_or(|last| last.ino != ino) {
            let key = Key::new(ino, ItemType::INODE_ITEM, 0);
            let item = self.new.tree().get(key)?;
            // Both trees have the same inode item, or neither has one.
            let inode = inode_of(self.new, key, item.as_deref())?;
            let exists = inode.is_some();
            self.changes.push(InodeDifference::new(ino, inode, exists, true));
        }
        let last = self.changes.len() - 1;
        Ok(&mut self.changes[last])
    }
}

/// The inode in an item, unless it is listed for deletion.
fn inode_of(
    subvolume: &Subvolume,
    key: Key,
    item: Option<&[u8]>,
) -> Result<Option<InodeItem>, Error> {
    let Some(bytes) = item else { return Ok(None) };
    let bad = |problem: FormatError| bad_item(subvolume, key, problem);
    let item: InodeItem = *read_exact_item(bytes).map_err(bad)?;
    let file_type = live_type(key.objectid, &item).map_err(bad)?;
    Ok(file_type.map(|_| item))
}
