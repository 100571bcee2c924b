//! Replaying the logs that a crash left, as the kernel does.
//!
//! A log has inodes with their references, attributes, extents and checksums, and of directories
//! the changed entries, with the ranges of indexes that it covers. Three passes go over all logs:
//! inodes first, so that the inode of each name exists; then entries; then everything else. Last,
//! the replay counts the links of the inodes that it changed and looks for the targets of symbolic
//! links.
//!
//! # Invariants
//! - A name in a directory and its reference in the inode are added and removed together.
//! - An inode whose names changed is counted anew; one without a name becomes an orphan.
//! - A symbolic link that the replay changed has its target: one inline extent of its size.
//! - Everything in a log is hostile: an invalid item ends the replay, and nothing of it was
//!   written.

mod extents;
mod inodes;
mod names;

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_btree::{LiveTree, Readahead, Tree};
use larder_format::feature::IncompatFlags;
use larder_format::item::{FileType, InodeItem};
use larder_format::objectid::{FIRST_FREE, LAST_FREE, TREE_LOG};
use larder_format::{FormatError, ItemType, Key, read_exact_item};
use larder_transaction::{Error, FoundLog, Recovery};

use crate::changed::Changed;
use crate::live::names::Names;

/// Replays all logs, except those of subvolumes that are gone.
pub(crate) fn replay(recovery: &Recovery<'_>) -> Changed<()> {
    let mut replays = Vec::new();
    for log in recovery.logs() {
        if let Some(tree) = recovery.subvolume(log.subvolume)? {
            replays.push(Replay::new(recovery, log, tree));
        }
    }
    replays.iter_mut().try_for_each(|replay| replay.pass(Replay::replay_inode))?;
    let inodes: usize = replays.iter().map(|replay| replay.changed.len()).sum();
    tracing::info!("a crash left a log, which is being replayed: {inodes} inodes");
    replays.iter_mut().try_for_each(|replay| replay.pass(Replay::replay_entry))?;
    for replay in &mut replays {
        replay.pass(Replay::replay_rest)?;
        replay.finish_inodes()?;
    }
    Ok(())
}

/// The replay of one log into its subvolume.
struct Replay<'a> {
    recovery: &'a Recovery<'a>,
    subvolume: u64,
    tree: Arc<LiveTree>,
    log: Tree,
    names: Names,
    /// Inodes that the replay changed and that are yet to be finished.
    changed: BTreeSet<u64>,
    /// Bytes in a sector.
    sectorsize: u64,
    has_hole_items: bool,
}

impl<'a> Replay<'a> {
    fn new(recovery: &'a Recovery<'a>, log: &FoundLog, tree: Arc<LiveTree>) -> Self {
        let superblock = recovery.manager().superblock();
        let has_extended_refs = superblock.has_incompat(IncompatFlags::EXTENDED_IREF);
        Self {
            recovery,
            subvolume: log.subvolume,
            names: Names::new(&tree, superblock.nodesize.get(), has_extended_refs, Arc::default()),
            tree,
            log: log.tree.clone(),
            changed: BTreeSet::new(),
            sectorsize: u64::from(superblock.sectorsize.get()),
            has_hole_items: !superblock.has_incompat(IncompatFlags::NO_HOLES),
        }
    }

    /// Calls `replay` with each item of the log, except those of inodes that had no name when they
    /// were synced.
    fn pass(&mut self, replay: fn(&mut Self, Key, &[u8]) -> Changed<()>) -> Changed<()> {
        let mut items = self.log.range(.., Readahead::Forward);
        let mut unnamed = None;
        while let Some((key, data)) = items.next_item()? {
            if key.item_type == ItemType::INODE_ITEM {
                let (item, _) = parse_inode(key, data)?;
                unnamed = (item.nlink.get() == 0).then_some(key.objectid);
            }
            if unnamed != Some(key.objectid) {
                replay(self, key, data)?;
            }
        }
        Ok(())
    }

    fn replay_rest(&mut self, key: Key, data: &[u8]) -> Changed<()> {
        match key.item_type {
            ItemType::XATTR_ITEM => self.put(key, data),
            ItemType::INODE_REF | ItemType::INODE_EXTREF => self.replay_references(key, data),
            ItemType::EXTENT_DATA => self.replay_extent(key, data),
            _ => Ok(()),
        }
    }

    /// Inserts an item of an existing inode, in place of any with its key.
    fn put(&self, key: Key, data: &[u8]) -> Changed<()> {
        self.existing_inode(key)?;
        Ok(self.tree.put(key, data)?)
    }

    /// An inode of the subvolume, and its type.
    fn inode(&self, number: u64) -> Changed<Option<(InodeItem, FileType)>> {
        let key = Key::new(number, ItemType::INODE_ITEM, 0);
        let found = self.tree.get(key)?;
        found.map(|data| self.parse_own_inode(key, &data)).transpose()
    }

    fn parse_own_inode(&self, key: Key, data: &[u8]) -> Changed<(InodeItem, FileType)> {
        parse_inode(key, data).map_err(|error| match error {
            Error::Item { key, problem, .. } => Error::Item { tree: self.subvolume, key, problem },
            error => error,
        })
    }

    /// The inode of an item of the log.
    fn existing_inode(&self, key: Key) -> Changed<(InodeItem, FileType)> {
        self.inode(key.objectid)?.ok_or_else(|| wrong(key, "there is no such inode"))
    }

    fn put_inode(&self, number: u64, item: &InodeItem) -> Changed<()> {
        use zerocopy::IntoBytes;
        Ok(self.tree.put(Key::new(number, ItemType::INODE_ITEM, 0), item.as_bytes())?)
    }
}

/// An inode as a log has it.
fn parse_inode(key: Key, data: &[u8]) -> Changed<(InodeItem, FileType)> {
    if !(FIRST_FREE..=LAST_FREE).contains(&key.objectid) {
        return Err(wrong(key, "no file has this number"));
    }
    let item: &InodeItem = read_exact_item(data).map_err(|problem| bad(key, problem))?;
    let file_type = FileType::from_mode(item.mode.get());
    Ok((*item, file_type.ok_or_else(|| wrong(key, "its mode has no type"))?))
}

/// An invalid item of a log.
fn wrong(key: Key, problem: &'static str) -> Error {
    bad(key, FormatError::invalid("log", problem))
}

fn bad(key: Key, problem: FormatError) -> Error {
    Error::Item { tree: TREE_LOG, key, problem }
}
