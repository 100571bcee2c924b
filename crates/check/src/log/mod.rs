//! Log trees, which a crash left for replay.
//!
//! Their blocks are allocated without an extent, and they may refer to data that no other tree has
//! yet. Each item is checked by itself, with those of subvolumes ([`crate::files`]). This module
//! checks what a replay needs:
//! * logged data is an extent of the last commit, or lies where nothing is allocated;
//! * logged data has checksums, in the same log or in the last commit, unless its inode has none.

mod data;

use larder_format::item::RootItem;
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, objectid};

pub(crate) use data::{LoggedData, check as check_data};

use crate::blocks::{Forest, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ItemEvidence, SuperblockEvidence, TreeEvidence};
use crate::report::Location;

/// The log of a subvolume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) subvolume: u64,
    pub(crate) root: TreeRoot,
}

/// Plants the tree of log trees, and the logs in it.
pub(crate) fn plant(context: &Context<'_>, forest: &mut Forest) -> Vec<Log> {
    let superblock = &context.superblock;
    let (logical, level) = (superblock.log_root.get(), superblock.log_root_level);
    if logical == 0 {
        return Vec::new();
    }
    if usize::from(level) >= MAX_LEVELS {
        context.find(Location::FILE_SYSTEM, SuperblockEvidence::LogLevel { found: level });
        return Vec::new();
    }
    // The log belongs to the transaction that the crash cut off.
    let generation = context.generation().saturating_add(1);
    let root = forest.plant(objectid::TREE_LOG, logical, generation, level);
    forest.grow(context);
    let mut logs: Vec<(u64, RootItem)> = Vec::new();
    let is_whole = for_each_item(context, forest, &root, |item| {
        if item.key.item_type != ItemType::ROOT_ITEM || item.key.objectid != objectid::TREE_LOG {
            return item.find(context, ItemEvidence::AmongLogs);
        }
        match RootItem::parse(item.data) {
            Ok(log) if usize::from(log.level) < MAX_LEVELS => logs.push((item.key.offset, log)),
            Ok(log) => item.find(context, TreeEvidence::Level { found: log.level }),
            Err(error) => item.find(context, ItemEvidence::Format { problem: error }),
        }
    });
    if !is_whole {
        context.find(Location::tree(objectid::TREE_LOG), TreeEvidence::UnknownLogs);
    }
    let logs = logs.into_iter().map(|(subvolume, log)| {
        let (logical, generation) = (log.bytenr().0, log.generation.get());
        let root = forest.plant(objectid::TREE_LOG, logical, generation, log.level);
        Log { subvolume, root }
    });
    let logs = logs.collect();
    forest.grow(context);
    logs
}
