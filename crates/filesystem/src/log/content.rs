//! The content of a log for the inodes that it covers.
//!
//! # Invariants
//! - What a log holds of an inode follows only from the inode's current state and the last commit.
//!   Earlier content of the log is adjusted to that.
//! - Of the file's extents it holds those that the last commit does not have, and holes where that
//!   has others. Only ranges that changed since the file was last logged are looked at.
//! - Checksums of extents enter the log together with the extent, before anything can need them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use larder_btree::{LiveTree, Readahead, TreeView};
use larder_format::item::{DirLogItem, FileExtent, InodeFlags, InodeItem};
use larder_format::{ItemType, Key, Logical};
use larder_transaction::LogWriter;
use zerocopy::{FromBytes, IntoBytes};

use crate::changed::Changed;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::item::id::InodeId;
use crate::item::links::links_of_item;
use crate::log::extents::FileLog;
use crate::log::plan::{LogPlan, NameChanges, bad};

/// With more changed items a commit is cheaper.
const MOST_CHANGES: usize = 4096;
/// With more extents of one file added and removed since it was last logged, a commit is cheaper.
const MOST_EXTENTS: usize = 512;

/// Items by key.
pub(crate) type Contents = BTreeMap<Key, Vec<u8>>;

/// Changes to be made to a log.
#[derive(Default)]
struct Changes {
    removed: BTreeSet<Key>,
    put: Contents,
}

impl LogPlan {
    /// Brings the logs to their new content. Returns whether there is space for that.
    pub(crate) fn enter(
        &self,
        core: &Core,
        writer: &Writer,
        logs: &mut LogWriter<'_, '_>,
    ) -> Changed<bool> {
        let mut changes: BTreeMap<u64, Changes> = BTreeMap::new();
        for (id, names) in &self.inodes {
            let changes = changes.entry(id.subvolume).or_default();
            if !self.compare(writer, logs, *id, names.as_ref(), changes)? {
                return Ok(false);
            }
        }
        for id in &self.gone {
            let changes = changes.entry(id.subvolume).or_default();
            let (log, nothing) = (logs.log(id.subvolume), Contents::new());
            changes.forget_entries(log, *id, &nothing)?;
            changes.bring(log, keys(*id, ItemType(0), ItemType(u8::MAX)), &nothing)?;
        }
        let of_one = |changes: &Changes| changes.removed.len() + changes.put.len();
        let count: usize = changes.values().map(of_one).sum();
        // As many again for checksums.
        if count > MOST_CHANGES || !logs.reserve(2 * count as u64)? {
            return Ok(false);
        }
        for (subvolume, changes) in &changes {
            if changes.removed.is_empty() && changes.put.is_empty() {
                continue;
            }
            let log = logs.log_or_new(*subvolume)?;
            log.delete_batch(&changes.removed.iter().copied().collect::<Vec<_>>())?;
            for (key, data) in &changes.put {
                log.put(*key, data)?;
                if key.item_type == ItemType::EXTENT_DATA
                    && !self.enter_checksums(core, logs, &log, *subvolume, *key, data)?
                {
                    return Ok(false);
                }
            }
        }
        writer.logged_inodes.logged(self.inodes.keys().copied(), self.gone.iter().copied());
        Ok(true)
    }

    /// Plans the changes of the log for an inode. Returns false if there are too many.
    fn compare(
        &self,
        writer: &Writer,
        logs: &LogWriter<'_, '_>,
        id: InodeId,
        names: Option<&NameChanges>,
        changes: &mut Changes,
    ) -> Changed<bool> {
        let (trees, log) = (&self.trees[&id.subvolume], logs.log(id.subvolume));
        let itself = keys(id, ItemType(0), ItemType::XATTR_ITEM);
        let contents = items(&TreeView::Live(trees.live.clone()), &itself)?;
        changes.forget_entries(log, id, &contents)?;
        changes.bring(log, itself, &contents)?;
        if let Some(names) = names {
            let entries = keys(id, ItemType::DIR_LOG_ITEM, ItemType::DIR_INDEX);
            changes.bring(log, entries, &names.contents(id))?;
        }
        let sectorsize = u64::from(writer.manager.volume().sectorsize());
        let file = FileLog { id, trees, log, sectorsize };
        let mut count = 0;
        for range in file.changed(writer)? {
            let extents = file.extents(&range)?;
            count += extents.len();
            if count > MOST_EXTENTS {
                return Ok(false);
            }
            changes.bring(log, file.key(range.start)..=file.key(range.end - 1), &extents)?;
        }
        Ok(true)
    }

    /// Plans the checksums of an extent, if its file has any. Returns whether they are complete.
    fn enter_checksums(
        &self,
        core: &Core,
        logs: &LogWriter<'_, '_>,
        log: &Arc<LiveTree>,
        subvolume: u64,
        key: Key,
        data: &[u8],
    ) -> Changed<bool> {
        let Some(range) = checksum_range(data) else { return Ok(true) };
        let live = &self.trees[&subvolume].live;
        let flags = |data: &[u8]| {
            InodeItem::ref_from_prefix(data).map_or(InodeFlags::empty(), |(item, _)| item.flags())
        };
        let flags = live.get_with(Key::new(key.objectid, ItemType::INODE_ITEM, 0), flags)?;
        if flags.is_some_and(|flags| flags.contains(InodeFlags::NODATASUM)) {
            return Ok(true);
        }
        let Ok(sums) = core.checksums(Logical(range.start), Logical(range.end)) else {
            return Ok(false);
        };
        logs.insert_checksums(log, Logical(range.start), &sums)?;
        Ok(true)
    }
}

/// The addresses of the checksums that a file extent needs: none if it has no written data of its
/// own.
fn checksum_range(data: &[u8]) -> Option<Range<u64>> {
    let Ok(FileExtent::Regular { header, extent, preallocated: false }) = FileExtent::parse(data)
    else {
        return None;
    };
    let start = extent.disk_bytenr()?.0;
    if header.compression != 0 {
        return Some(start..start + extent.disk_num_bytes.get());
    }
    let start = start + extent.offset.get();
    Some(start..start + extent.num_bytes.get())
}

impl Changes {
    /// Plans the changes that turn the log's items with these keys into `contents`.
    fn bring(
        &mut self,
        log: Option<&Arc<LiveTree>>,
        keys: RangeInclusive<Key>,
        contents: &Contents,
    ) -> Changed<()> {
        let logged = match log {
            Some(log) => items(&TreeView::Live(log.clone()), &keys)?,
            None => Contents::new(),
        };
        self.removed.extend(logged.keys().filter(|key| !contents.contains_key(key)));
        let is_new = |(key, data): &(&Key, &Vec<u8>)| logged.get(key) != Some(data);
        let new = contents.iter().filter(is_new).map(|(key, data)| (*key, data.clone()));
        self.put.extend(new);
        Ok(())
    }
}

impl Changes {
    /// Plans to remove entries of directories from the log that lead to an inode by names which it
    /// had when it was logged and has lost.
    fn forget_entries(
        &mut self,
        log: Option<&Arc<LiveTree>>,
        id: InodeId,
        contents: &Contents,
    ) -> Changed<()> {
        let Some(log) = log else { return Ok(()) };
        let references = (ItemType::INODE_REF, ItemType::INODE_EXTREF);
        let places = |contents: &Contents| -> Changed<BTreeSet<(u64, u64)>> {
            let mut places = BTreeSet::new();
            for (key, data) in contents
                .iter()
                .filter(|(key, _)| (references.0..=references.1).contains(&key.item_type))
            {
                links_of_item(*key, data, |directory, index, _| {
                    places.insert((directory, index));
                })
                .map_err(|problem| bad(id, *key, problem))?;
            }
            Ok(places)
        };
        let references = keys(id, references.0, references.1);
        let then = places(&items(&TreeView::Live(log.clone()), &references)?)?;
        let entry =
            |(directory, index): &(u64, u64)| Key::new(*directory, ItemType::DIR_INDEX, *index);
        self.removed.extend(then.difference(&places(contents)?).map(entry));
        Ok(())
    }
}

/// The keys of an inode's items of these types.
fn keys(id: InodeId, first: ItemType, last: ItemType) -> RangeInclusive<Key> {
    Key::new(id.number, first, 0)..=Key::new(id.number, last, u64::MAX)
}

/// The items with these keys.
fn items(tree: &TreeView, keys: &RangeInclusive<Key>) -> Changed<Contents> {
    let mut found = tree.range(keys.clone(), Readahead::None);
    let mut items = Contents::new();
    while let Some((key, data)) = found.next_item()? {
        items.insert(key, data.to_vec());
    }
    Ok(items)
}

impl NameChanges {
    /// Entries that were added, and ranges of those that were removed.
    fn contents(&self, id: InodeId) -> Contents {
        let mut contents = Contents::new();
        for (index, entry) in &self.came {
            contents.insert(Key::new(id.number, ItemType::DIR_INDEX, *index), entry.clone());
        }
        for index in &self.went {
            let key = Key::new(id.number, ItemType::DIR_LOG_INDEX, *index);
            contents.insert(key, DirLogItem { end: (*index).into() }.as_bytes().to_vec());
        }
        contents
    }
}
