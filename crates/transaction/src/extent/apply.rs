//! From queued changes of extents to edits of the extent tree.
//!
//! The items of a batch of extents are looked up together, parsed, changed, and assembled again:
//! neighbours share a leaf. References with keys of their own are few, and edited one at a time.
//!
//! # Invariants
//! - An item's count is the sum of its references, inline and keyed.
//! - A referrer has one back reference at most, either inline or keyed.
//! - Once an extent has keyed references, new ones are keyed too.
//! - An item goes with its last reference.

use larder_format::item::{
    BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK, ExtentDataRef,
    SharedDataRef, TreeBlockInfo,
};
use larder_format::{FormatError, ItemType, Key, Logical};
use zerocopy::IntoBytes;

use super::Referrer;
use super::record::Record;
use crate::error::{Error, Result};
use crate::items::Items;
use crate::refs::{ExtentKind, Head};

/// The result of running a head.
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

/// How far from its hash the key of a reference may be if it collides with others.
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

/// An extent item in memory.
struct KeyedRecord {
    key: Key,
    record: Record,
}

/// A parsed item, or what is wrong with it.
type Parsed = Result<Record, FormatError>;

/// The state of an extent in the extent tree.
struct Stored {
    /// The item with the key that a new item gets.
    parsed: Option<Parsed>,
    /// Whether the extent has references with keys of their own.
    has_keyed: bool,
}

/// Planned changes of items. The keys of each list ascend.
#[derive(Default)]
struct Edits {
    removed: Vec<Key>,
    replaced: Vec<(Key, Vec<u8>)>,
    inserted: Vec<(Key, Vec<u8>)>,
}

impl Edits {
    fn make(&self, tree: &mut dyn Items) -> Result<()> {
        tree.remove_batch(&self.removed)?;
        tree.replace_batch(&borrowed(&self.replaced))?;
        tree.insert_batch(&borrowed(&self.inserted))
    }
}

fn borrowed(items: &[(Key, Vec<u8>)]) -> Vec<(Key, &[u8])> {
    items.iter().map(|(key, data)| (*key, &data[..])).collect()
}

impl ExtentItems {
    /// Updates the items of extents, whose addresses ascend, and their keyed references. Returns
    /// the result for each.
    pub fn run(
        &self,
        tree: &mut dyn Items,
        heads: &[(Logical, Head)],
    ) -> Result<Vec<ExtentChange>> {
        let stored = self.look_up(tree, heads)?;
        let mut edits = Edits::default();
        let mut changes = Vec::with_capacity(heads.len());
        for ((logical, head), stored) in heads.iter().zip(stored) {
            changes.push(self.run_head(tree, *logical, head, stored, &mut edits)?);
        }
        edits.make(tree)?;
        Ok(changes)
    }

    /// The state of each extent in the extent tree.
    fn look_up(&self, tree: &dyn Items, heads: &[(Logical, Head)]) -> Result<Vec<Stored>> {
        let keys_of = |(logical, head): &(Logical, Head)| {
            [self.key(*logical, head.len_bytes, head.kind), key_behind_item(*logical)]
        };
        let keys: Vec<Key> = heads.iter().flat_map(keys_of).collect();
        let mut stored: Vec<Stored> = Vec::with_capacity(heads.len());
        tree.look_at_or_after(&keys, &mut |wanted, found| match stored.last_mut() {
            Some(last) if wanted.item_type == BEHIND_ITEM => {
                last.has_keyed = found.is_some_and(|(key, _)| is_keyed(key, wanted.objectid));
            }
            _ => {
                let item = found.filter(|(key, _)| *key == wanted);
                let parsed = item.map(|(key, data)| Record::parse(key, data));
                stored.push(Stored { parsed, has_keyed: false });
            }
        })?;
        Ok(stored)
    }

    /// Edits the keyed references of an extent, and plans the change of its item.
    fn run_head(
        &self,
        tree: &mut dyn Items,
        logical: Logical,
        head: &Head,
        stored: Stored,
        edits: &mut Edits,
    ) -> Result<ExtentChange> {
        if head.is_contradictory {
            return Err(Error::extent(logical, "the references to it disagree about what it is"));
        }
        if head.touches_nothing() {
            return Ok(ExtentChange::Kept);
        }
        let KeyedRecord { key, mut record } = if head.is_new {
            self.new_item(logical, head)?
        } else {
            let found = self.found(tree, logical, head.len_bytes, head.kind, stored.parsed)?;
            found.ok_or_else(|| {
                let problem = format!("it has no item, but its references change: {head:?}");
                Error::extent(logical, problem)
            })?
        };
        let (nodesize, has_keyed) = (self.nodesize as usize, stored.has_keyed);
        Change { tree, logical, nodesize, has_keyed }.apply(&mut record, head)?;
        if head.is_new {
            edits.inserted.push((key, record.to_bytes()));
            return Ok(ExtentChange::Inserted);
        }
        if record.refs == 0 {
            edits.removed.push(key);
            return Ok(ExtentChange::Removed);
        }
        edits.replaced.push((key, record.to_bytes()));
        Ok(ExtentChange::Kept)
    }

    /// The references of the extent in the extent tree; `None` if it has no item.
    pub fn references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        kind: ExtentKind,
    ) -> Result<Option<References>> {
        let found = self.find(tree, logical, len_bytes, kind)?;
        Ok(found.map(|KeyedRecord { record, .. }| References {
            count: record.refs,
            flags: record.flags,
        }))
    }

    /// How many references the data at `logical` has, and how many of them are inline and from
    /// `referrer`; `None` if it has no item.
    pub fn data_references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        referrer: Referrer,
    ) -> Result<Option<(u64, u64)>> {
        let found = self.find(tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.map(|KeyedRecord { record, .. }| {
            (record.refs, record.count_of(referrer).map_or(0, u64::from))
        }))
    }

    /// How many references the data at `logical` has, and how many of them are inline and from
    /// files in the subvolume `root`; `None` if it has no item.
    pub fn subvolume_references(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        root: u64,
    ) -> Result<Option<(u64, u64)>> {
        let found = self.find(tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.map(|KeyedRecord { record, .. }| (record.refs, record.count_in_subvolume(root))))
    }

    /// The item of a new extent, still without references. The first will be inline whatever its
    /// size.
    fn new_item(&self, logical: Logical, head: &Head) -> Result<KeyedRecord> {
        if head.additions().next().is_none() || head.drops().next().is_some() {
            let problem = "it is new but references to it are dropped or none is added";
            return Err(Error::extent(logical, problem));
        }
        let (type_flag, info) = match head.kind {
            ExtentKind::Data => (EXTENT_FLAG_DATA, None),
            ExtentKind::TreeBlock { .. } if self.skinny_metadata => (EXTENT_FLAG_TREE_BLOCK, None),
            ExtentKind::TreeBlock { level, first_key } => {
                (EXTENT_FLAG_TREE_BLOCK, Some(TreeBlockInfo { key: first_key.into(), level }))
            }
        };
        let full_flag = if head.sets_full_backref { EXTENT_FLAG_FULL_BACKREF } else { 0 };
        let key = self.key(logical, head.len_bytes, head.kind);
        Ok(KeyedRecord { key, record: Record::new(self.generation, type_flag | full_flag, info) })
    }

    /// The key for the item of an extent.
    fn key(&self, logical: Logical, len_bytes: u64, kind: ExtentKind) -> Key {
        match kind {
            ExtentKind::TreeBlock { level, .. } if self.skinny_metadata => {
                Key::new(logical.0, ItemType::METADATA_ITEM, u64::from(level))
            }
            _ => long_key(logical, len_bytes),
        }
    }

    /// The item of an extent.
    fn find(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        kind: ExtentKind,
    ) -> Result<Option<KeyedRecord>> {
        let key = self.key(logical, len_bytes, kind);
        let parsed = tree.get(key)?.map(|data| Record::parse(key, &data));
        self.found(tree, logical, len_bytes, kind, parsed)
    }

    /// The item of an extent; `parsed` is the item with the key that a new one gets. A tree block
    /// from before skinny metadata was switched on keeps its long key.
    fn found(
        &self,
        tree: &dyn Items,
        logical: Logical,
        len_bytes: u64,
        kind: ExtentKind,
        parsed: Option<Parsed>,
    ) -> Result<Option<KeyedRecord>> {
        let (mut key, long) = (self.key(logical, len_bytes, kind), long_key(logical, len_bytes));
        let mut parsed = parsed;
        if parsed.is_none() && key != long {
            key = long;
            parsed = tree.get(key)?.map(|data| Record::parse(key, &data));
        }
        let Some(parsed) = parsed else { return Ok(None) };
        let record = parsed.map_err(|problem| Error::item(tree.tree(), key, problem))?;
        let is_tree_block = record.flags & EXTENT_FLAG_TREE_BLOCK != 0;
        if is_tree_block != matches!(kind, ExtentKind::TreeBlock { .. }) {
            let problem = format!("{kind:?} has an item with flags {:#x}", record.flags);
            return Err(Error::extent(logical, problem));
        }
        Ok(Some(KeyedRecord { key, record }))
    }
}

fn long_key(logical: Logical, len_bytes: u64) -> Key {
    Key::new(logical.0, ItemType::EXTENT_ITEM, len_bytes)
}

/// Less than the type of any keyed reference, and greater than that of an item.
const BEHIND_ITEM: ItemType = ItemType(ItemType::METADATA_ITEM.0 + 1);

fn key_behind_item(logical: Logical) -> Key {
    Key::new(logical.0, BEHIND_ITEM, 0)
}

/// Whether a key after that of an extent's item is of a reference to this extent.
fn is_keyed(key: Key, objectid: u64) -> bool {
    key.objectid == objectid && key.item_type < ItemType::BLOCK_GROUP_ITEM
}

/// A change of one extent's references in progress.
struct Change<'a> {
    tree: &'a mut dyn Items,
    logical: Logical,
    nodesize: usize,
    /// Whether the extent has references with keys of their own.
    has_keyed: bool,
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
        } else if is_first || (record.has_room_for(referrer, self.nodesize) && !self.has_keyed) {
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

    fn add_keyed(&mut self, referrer: Referrer, count: u64) -> Result<()> {
        self.has_keyed = true;
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

    /// The keyed reference of `referrer`, or the key that it would get. References of files are
    /// keyed by a hash; those whose hashes collide take the next keys, and any of them may be
    /// removed again.
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
