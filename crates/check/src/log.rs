//! Log trees: what a crash left to be replayed.
//!
//! Their blocks are allocated without an extent, and what they refer to may be in no other tree yet.
//! So each item is looked at by itself, and blocks must not lie in what is allocated.

use larder_format::item::RootItem;
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, objectid};

use crate::blocks::{Forest, for_each_item};
use crate::context::Context;
use crate::report::Kind;

/// Plants the tree of log trees, and these.
pub(crate) fn plant(context: &Context<'_>, forest: &mut Forest) {
    let superblock = context.superblock;
    let (logical, level) = (superblock.log_root.get(), superblock.log_root_level);
    if logical == 0 || usize::from(level) >= MAX_LEVELS {
        return;
    }
    // The log belongs to the transaction that the crash cut off.
    let generation = context.generation().saturating_add(1);
    let root = forest.plant(objectid::TREE_LOG, logical, generation, level);
    forest.grow(context);
    let mut logs: Vec<RootItem> = Vec::new();
    for_each_item(context, forest, &root, |item| {
        if item.key.item_type != ItemType::ROOT_ITEM || item.key.objectid != objectid::TREE_LOG {
            let message = format_args!("in the tree of log trees");
            return item.find(context, Kind::UnexpectedItem, message);
        }
        match RootItem::parse(item.data) {
            Ok(log) if usize::from(log.level) < MAX_LEVELS => logs.push(log),
            Ok(log) => {
                item.find(context, Kind::RootItem, format_args!("it has level {}", log.level));
            }
            Err(error) => item.find(context, Kind::ItemFormat, format_args!("{error}")),
        }
    });
    for log in logs {
        forest.plant(objectid::TREE_LOG, log.bytenr().0, log.generation.get(), log.level);
    }
    forest.grow(context);
}
