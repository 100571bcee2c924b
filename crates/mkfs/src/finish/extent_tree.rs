//! The extent tree: all extents, and the references to them.

use larder_format::item::{
    BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_TREE_BLOCK, ExtentItem, TreeBlockInfo,
};
use larder_format::{ItemType, Key};
use zerocopy::IntoBytes;

use super::merge::merge;
use super::{Layout, Plan, block_groups};
use crate::image::{BlockRecord, ExtentRecord};
use crate::settings::GENERATION;
use crate::space::BlockGroup;
use crate::tree::Emit;
use crate::{Features, MkfsError};

enum Entry<'a> {
    Data(&'a ExtentRecord),
    Block(&'a BlockRecord),
    Group(&'a BlockGroup),
}

pub(super) fn items(
    layout: &Layout<'_>,
    plan: &Plan,
    emit: &mut Emit<'_>,
) -> Result<(), MkfsError> {
    let settings = layout.settings;
    let skinny = settings.has(Features::SKINNY_METADATA);
    let own_tree = settings.has(Features::BLOCK_GROUP_TREE);
    let planned = plan.sorted_blocks();
    let block = |record| (block_key(record, skinny, settings.node_size), Entry::Block(record));
    let blocks = merge(layout.blocks.iter().map(block), planned.iter().map(block));
    let data = layout.extents.iter().map(|record| (data_key(record), Entry::Data(record)));
    let groups = plan.space.groups().iter().filter(|_| !own_tree);
    let groups = groups.map(|group| (block_groups::key(group), Entry::Group(group)));
    let mut item = Vec::new();
    for (key, entry) in merge(merge(blocks, data), groups) {
        item.clear();
        match entry {
            Entry::Data(record) => write_data(record, &mut item),
            Entry::Block(record) => write_block(record, skinny, &mut item),
            Entry::Group(group) => {
                item.extend_from_slice(block_groups::item(group).as_bytes());
            }
        }
        emit(key, &item)?;
    }
    Ok(())
}

fn data_key(record: &ExtentRecord) -> Key {
    Key::new(record.logical.0, ItemType::EXTENT_ITEM, record.len_bytes.into())
}

fn block_key(record: &BlockRecord, skinny: bool, node_size: usize) -> Key {
    if skinny {
        Key::new(record.logical.0, ItemType::METADATA_ITEM, record.level.into())
    } else {
        Key::new(record.logical.0, ItemType::EXTENT_ITEM, node_size as u64)
    }
}

fn write_data(record: &ExtentRecord, item: &mut Vec<u8>) {
    item.extend_from_slice(one_reference(EXTENT_FLAG_DATA).as_bytes());
    let reference = BackRef::Data {
        root: record.root,
        objectid: record.inode,
        offset: record.file_offset,
        count: 1,
    };
    reference.write_inline(item);
}

fn write_block(record: &BlockRecord, skinny: bool, item: &mut Vec<u8>) {
    item.extend_from_slice(one_reference(EXTENT_FLAG_TREE_BLOCK).as_bytes());
    if !skinny {
        let info = TreeBlockInfo { key: record.first_key.into(), level: record.level };
        item.extend_from_slice(info.as_bytes());
    }
    BackRef::TreeBlock { root: record.owner }.write_inline(item);
}

fn one_reference(flags: u64) -> ExtentItem {
    ExtentItem { refs: 1.into(), generation: GENERATION.into(), flags: flags.into() }
}
