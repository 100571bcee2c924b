//! From the queued changes of one extent to edits of the extent tree.
//!
//! # Invariants
//! - An item's count is the sum of its references, inline and keyed.
//! - A referrer has one back reference at most, either inline or keyed.
//! - Once an extent has keyed references new ones are keyed too.
//! - An item goes with its last reference.

use larder_format::item::{
    BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK, ExtentDataRef,
    SharedDataRef, TreeBlockInfo,
};
use larder_format::{ItemType, Key, Logical};
use zerocopy::IntoBytes;

use super::Referrer;
use super::record::Record;
use crate::error::{Error, Result};
use crate::items::Items;
use crate::refs::{ExtentKind, Head};

/// What running a head did to its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentChange {
    /// The extent is in the extent tree now.
    Inserted,
    /// It was there and still is, or was never there.
    Kept,
    /// It is not in the extent tree any more.
    Removed,
}

/// How many references an extent has, and its `EXTENT_FLAG_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct References {
    /// Number of references.
    pub count: u64,
    /// `EXTENT_FLAG_*`.
    pub flags: u64,
}

/// How far behind its hash the key of a reference may lie that collides with others.
const MOST_COLLISIONS: u64 = 1024;

/// The extent tree of a file system with these properties.
#[derive(Clone, Copy, Debug)]
pub struct ExtentItems {
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// Whether tree blocks have METADATA_ITEM keys.
    pub skinny_metadata: bool,
    /// The running transaction.
    pub generation: u64,
}

/// An extent item in hand.
struct Found {
    key: Key,
    record: Record,
}

impl ExtentItems {
    /// Brings the item of the extent at `logical`, and its keyed references, up to date.
    pub fn run(&self, tree: &mut dyn Items, logical: Logical, head: &Head) -> Result<ExtentChange> {
        if head.is_contradictory {
            return Err(Error::extent(logical, "those who refer to it disagree about what it is"));
        }
        if head.touches_nothing() {
            return Ok(ExtentChange::Kept);
        }
        if head.is_new {
            return self.insert(tree, logical, head);
        }
        let Found { key, mut record } =
            self.find(tree, logical, head.len_bytes, head.kind)?.ok_or_else(|| {
                Error::extent(
                    logical,
                    format!("it has no item, but its references change: {head:?}"),
                )
            })?;
        let change = Change { tree, logical, nodesize: self.nodesize as usize };
        change.apply(&mut record, head)?;
        if record.refs == 0 {
            tree.remove(key)?;
            return Ok(ExtentChange::Removed);
        }
        tree.replace(key, &record.to_bytes())?;
        Ok(ExtentChange::Kept)
    }

    /// The references of the extent as the extent tree has them; `None` if it has no item.
    pub fn references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        kind: ExtentKind,
    ) -> Result<Option<References>> {
        let found = self.find(tree, logical, len_bytes, kind)?;
        Ok(found.map(|Found { record, .. }| References { count: record.refs, flags: record.flags }))
    }

    /// How many references the data at `logical` has, and how many of them `referrer` has inline; `None`
    /// if it has no item.
    pub fn data_references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        referrer: Referrer,
    ) -> Result<Option<(u64, u64)>> {
        let found = self.find(tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.map(|Found { record, .. }| {
            (record.refs, record.count_of(referrer).map_or(0, u64::from))
        }))
    }

    /// How many references the data at `logical` has, and how many of them files in the subvolume `root` have
    /// inline; `None` if it has no item.
    pub fn subvolume_references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        root: u64,
    ) -> Result<Option<(u64, u64)>> {
        let found = self.find(tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.map(|Found { record, .. }| (record.refs, record.count_in_subvolume(root))))
    }

    /// Inserts the item of a new extent. The first reference is inline whatever its size.
    fn insert(&self, tree: &mut dyn Items, logical: Logical, head: &Head) -> Result<ExtentChange> {
        let (Some((first, _)), None) = (head.additions().next(), head.drops().next()) else {
            let problem = "it is new but references to it are dropped or none is added";
            return Err(Error::extent(logical, problem));
        };
        let (key, mut record) = self.new_item(logical, head, first);
        let change = Change { tree, logical, nodesize: self.nodesize as usize };
        change.apply(&mut record, head)?;
        tree.insert(key, &record.to_bytes())?;
        Ok(ExtentChange::Inserted)
    }

    fn new_item(&self, logical: Logical, head: &Head, first: Referrer) -> (Key, Record) {
        let (key, type_flag, info) = match head.kind {
            ExtentKind::Data => (data_key(logical, head.len_bytes), EXTENT_FLAG_DATA, None),
            ExtentKind::TreeBlock { level, .. } if self.skinny_metadata => {
                (skinny_key(logical, level), EXTENT_FLAG_TREE_BLOCK, None)
            }
            ExtentKind::TreeBlock { level, first_key } => {
                let info = TreeBlockInfo { key: first_key.into(), level };
                (data_key(logical, head.len_bytes), EXTENT_FLAG_TREE_BLOCK, Some(info))
            }
        };
        let is_full = head.sets_full_backref || matches!(first, Referrer::Block { .. });
        let full_flag = if is_full { EXTENT_FLAG_FULL_BACKREF } else { 0 };
        (key, Record::new(self.generation, type_flag | full_flag, info))
    }

    /// The item of an extent. A tree block from before skinny metadata was switched on keeps its long key.
    fn find(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        kind: ExtentKind,
    ) -> Result<Option<Found>> {
        let skinny = match kind {
            ExtentKind::TreeBlock { level, .. } if self.skinny_metadata => {
                Some(skinny_key(logical, level))
            }
            _ => None,
        };
        for key in skinny.into_iter().chain([data_key(logical, len_bytes)]) {
            let Some(data) = tree.get(key)? else { continue };
            let record = Record::parse(key, &data)
                .map_err(|problem| Error::item(tree.tree(), key, problem))?;
            let is_tree_block = record.flags & EXTENT_FLAG_TREE_BLOCK != 0;
            if is_tree_block != matches!(kind, ExtentKind::TreeBlock { .. }) {
                let flags = record.flags;
                return Err(Error::extent(
                    logical,
                    format!("{kind:?} has an item with flags {flags:#x}"),
                ));
            }
            return Ok(Some(Found { key, record }));
        }
        Ok(None)
    }
}

fn data_key(logical: Logical, len_bytes: u64) -> Key {
    Key::new(logical.0, ItemType::EXTENT_ITEM, len_bytes)
}

fn skinny_key(logical: Logical, level: u8) -> Key {
    Key::new(logical.0, ItemType::METADATA_ITEM, u64::from(level))
}

/// A change of one extent's references in progress.
struct Change<'a> {
    tree: &'a mut dyn Items,
    logical: Logical,
    nodesize: usize,
}

impl Change<'_> {
    fn apply(mut self, record: &mut Record, head: &Head) -> Result<()> {
        for (referrer, count) in head.additions() {
            self.add(record, referrer, count)?;
        }
        for (referrer, count) in head.drops() {
            self.drop_refs(record, referrer, count)?;
        }
        if head.sets_full_backref {
            record.flags |= EXTENT_FLAG_FULL_BACKREF;
        }
        Ok(())
    }

    fn add(&mut self, record: &mut Record, referrer: Referrer, count: u64) -> Result<()> {
        let is_first = record.refs == 0;
        record.refs = record
            .refs
            .checked_add(count)
            .ok_or_else(|| self.wrong(referrer, "its count passes 64 bits"))?;
        if let Some(before) = record.count_of(referrer) {
            let sum = self.sum(referrer, before, count)?;
            record.set_count(referrer, sum);
        } else if is_first || (record.has_room_for(referrer, self.nodesize) && !self.has_keyed()?) {
            let sum = self.sum(referrer, 0, count)?;
            record.set_count(referrer, sum);
        } else {
            self.add_keyed(referrer, count)?;
        }
        Ok(())
    }

    fn drop_refs(&mut self, record: &mut Record, referrer: Referrer, count: u64) -> Result<()> {
        match record.count_of(referrer) {
            Some(before) => record.set_count(referrer, self.difference(referrer, before, count)?),
            None => self.drop_keyed(referrer, count)?,
        }
        record.refs = record
            .refs
            .checked_sub(count)
            .ok_or_else(|| self.wrong(referrer, "more references are dropped than it has"))?;
        Ok(())
    }

    /// Whether the extent has references with keys of their own.
    fn has_keyed(&self) -> Result<bool> {
        let behind_item = Key::new(self.logical.0, ItemType(ItemType::METADATA_ITEM.0 + 1), 0);
        let next = self.tree.at_or_after(behind_item)?;
        Ok(next.is_some_and(|(key, _)| {
            key.objectid == self.logical.0 && key.item_type < ItemType::BLOCK_GROUP_ITEM
        }))
    }

    fn add_keyed(&mut self, referrer: Referrer, count: u64) -> Result<()> {
        match self.find_keyed(referrer)? {
            Keyed::There { key, count: before } => {
                let sum = self.sum(referrer, before, count)?;
                self.tree.replace(key, &keyed_data(referrer, sum))
            }
            Keyed::Free { key } => {
                let sum = self.sum(referrer, 0, count)?;
                self.tree.insert(key, &keyed_data(referrer, sum))
            }
        }
    }

    fn drop_keyed(&mut self, referrer: Referrer, count: u64) -> Result<()> {
        let Keyed::There { key, count: before } = self.find_keyed(referrer)? else {
            return Err(self.wrong(referrer, "a reference is dropped that it does not have"));
        };
        match self.difference(referrer, before, count)? {
            0 => self.tree.remove(key),
            left => self.tree.replace(key, &keyed_data(referrer, left)),
        }
    }

    /// The keyed reference of `referrer`, or the key that it would get. References of files go by a
    /// hash; those whose hashes collide take the keys that follow, and any of them may go again.
    fn find_keyed(&self, referrer: Referrer) -> Result<Keyed> {
        let wanted = referrer.back_ref(1);
        let first = Key::new(self.logical.0, wanted.item_type(), wanted.sequence());
        let reach = if matches!(referrer, Referrer::File { .. }) { MOST_COLLISIONS } else { 1 };
        let last = Key { offset: first.offset.saturating_add(reach - 1), ..first };
        let (mut key, mut free) = (first, None);
        while let Some((at, data)) = self.tree.at_or_after(key)?.filter(|(at, _)| *at <= last) {
            let there = BackRef::parse_keyed(at, &data)
                .map_err(|problem| Error::item(self.tree.tree(), at, problem))?;
            if Referrer::of(&there) == Some(referrer) {
                return Ok(Keyed::There { key: at, count: there.count() });
            }
            if at != key {
                free = free.or(Some(key));
            }
            match at.successor() {
                Some(next) if at < last => key = next,
                _ => {
                    let free = free.ok_or_else(|| self.wrong(referrer, "too many collide with it"));
                    return Ok(Keyed::Free { key: free? });
                }
            }
        }
        Ok(Keyed::Free { key: free.unwrap_or(key) })
    }

    fn sum(&self, referrer: Referrer, before: u32, count: u64) -> Result<u32> {
        let sum = u32::try_from(count).ok().and_then(|count| before.checked_add(count));
        match sum {
            Some(sum) if sum == 1 || referrer.is_of_data() => Ok(sum),
            _ => Err(self.wrong(referrer, "it gains a reference too many")),
        }
    }

    fn difference(&self, referrer: Referrer, before: u32, count: u64) -> Result<u32> {
        let left = u32::try_from(count).ok().and_then(|count| before.checked_sub(count));
        left.ok_or_else(|| self.wrong(referrer, "more references are dropped than it has"))
    }

    fn wrong(&self, referrer: Referrer, problem: &str) -> Error {
        Error::extent(self.logical, format!("{referrer:?}: {problem}"))
    }
}

enum Keyed {
    There { key: Key, count: u32 },
    Free { key: Key },
}

pub(super) fn keyed_data(referrer: Referrer, count: u32) -> Vec<u8> {
    match referrer {
        Referrer::Tree { .. } | Referrer::Block { .. } => Vec::new(),
        Referrer::Leaf { .. } => SharedDataRef { count: count.into() }.as_bytes().to_vec(),
        Referrer::File { root, inode, offset } => ExtentDataRef {
            root: root.into(),
            objectid: inode.into(),
            offset: offset.into(),
            count: count.into(),
        }
        .as_bytes()
        .to_vec(),
    }
}
