//! Extents and their references.

use super::{Context, Item, Verdict, ensure, is_plain_subvolume};
use crate::feature::IncompatFlags;
use crate::item::{BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, Extent, ExtentDataRef};
use crate::item::{EXTENT_FLAG_TREE_BLOCK, SharedDataRef};
use crate::node::MAX_LEVELS;
use crate::objectid::{DATA_RELOC_TREE, FIRST_FREE, FREE_INO, LAST_FREE, ROOT_TREE};
use crate::{ItemType, Key};
use zerocopy::FromBytes;

pub(super) fn check_extent(item: &Item<'_>, context: &Context) -> Verdict {
    let key = item.key;
    check_start(key, context)?;
    let extent = Extent::parse(key, item.data).map_err(|e| e.to_string())?;
    let flags = extent.item.flags.get();
    match flags & (EXTENT_FLAG_DATA | EXTENT_FLAG_TREE_BLOCK) {
        EXTENT_FLAG_DATA => check_data_extent(key, flags, context)?,
        EXTENT_FLAG_TREE_BLOCK => check_tree_block_extent(key, &extent, context)?,
        _ => return Err(format!("flags {flags:#x} say neither data nor tree block")),
    }
    check_inline_refs(&extent, context)?;
    check_previous_extent(item, context)
}

fn check_start(key: Key, context: &Context) -> Verdict {
    ensure(context.is_aligned(key.objectid), || {
        format!("address {} is not a multiple of {}", key.objectid, context.sectorsize)
    })
}

fn check_data_extent(key: Key, flags: u64, context: &Context) -> Verdict {
    ensure(key.item_type == ItemType::EXTENT_ITEM, || "data as a tree block's item".into())?;
    ensure(context.is_aligned(key.offset), || {
        format!("length {} is not a multiple of {}", key.offset, context.sectorsize)
    })?;
    ensure(flags & EXTENT_FLAG_FULL_BACKREF == 0, || "data with full back references".into())
}

fn check_tree_block_extent(key: Key, extent: &Extent<'_>, context: &Context) -> Verdict {
    let level = if let Some(info) = extent.tree_block_info {
        ensure(key.offset == u64::from(context.nodesize), || {
            format!("a tree block of {} bytes", key.offset)
        })?;
        info.level.into()
    } else {
        ensure(context.has(IncompatFlags::SKINNY_METADATA), || {
            "a METADATA_ITEM without the feature SKINNY_METADATA".into()
        })?;
        key.offset
    };
    ensure(level < MAX_LEVELS as u64, || format!("level {level} is over 7"))
}

/// Inline references ascend by type, and within a type descend by sequence. They cannot be more
/// than the extent's references.
fn check_inline_refs(extent: &Extent<'_>, context: &Context) -> Verdict {
    let mut counted = 0_u64;
    let mut last: Option<BackRef> = None;
    for inline in extent.back_refs() {
        let back_ref = inline.map_err(|e| e.to_string())?.back_ref;
        check_back_ref(&back_ref, context)?;
        if let Some(last) = last {
            let (before, now) = (last.item_type(), back_ref.item_type());
            ensure(before <= now, || format!("a reference {now} after one {before}"))?;
            ensure(before < now || last.sequence() >= back_ref.sequence(), || {
                format!("references {now} do not descend: {back_ref:?} follows {last:?}")
            })?;
        }
        counted += u64::from(back_ref.count());
        last = Some(back_ref);
    }
    let refs = extent.item.refs.get();
    ensure(counted <= refs, || format!("{counted} inline references where {refs} are counted"))
}

fn check_back_ref(back_ref: &BackRef, context: &Context) -> Verdict {
    match *back_ref {
        BackRef::SharedBlock { parent } => check_parent(parent, context),
        BackRef::SharedData { parent, count } => {
            check_parent(parent, context)?;
            ensure(count != 0, || "a reference counted 0 times".into())
        }
        BackRef::Data { root, objectid, offset, count } => {
            let possible = is_plain_subvolume(root) || [ROOT_TREE, DATA_RELOC_TREE].contains(&root);
            ensure(possible, || format!("a file of tree {root} cannot refer to data"))?;
            let possible = (FIRST_FREE..=LAST_FREE).contains(&objectid) || objectid == FREE_INO;
            ensure(possible, || format!("{objectid} is no inode number"))?;
            ensure(context.is_aligned(offset), || {
                format!("offset {offset} is not a multiple of {}", context.sectorsize)
            })?;
            ensure(count != 0, || "a reference counted 0 times".into())
        }
        BackRef::TreeBlock { .. } | BackRef::Owner { .. } => Ok(()),
    }
}

fn check_parent(parent: u64, context: &Context) -> Verdict {
    ensure(context.is_aligned(parent), || {
        format!("parent {parent} is not a multiple of {}", context.sectorsize)
    })
}

fn check_previous_extent(item: &Item<'_>, context: &Context) -> Verdict {
    let Some(previous) = item.previous else { return Ok(()) };
    let len_bytes = match previous.key.item_type {
        ItemType::EXTENT_ITEM => previous.key.offset,
        ItemType::METADATA_ITEM => context.nodesize.into(),
        _ => return Ok(()),
    };
    let end = previous.key.objectid.saturating_add(len_bytes);
    ensure(end <= item.key.objectid, || format!("starts before the one before it ends at {end}"))
}

pub(super) fn check_keyed_ref(item: &Item<'_>, context: &Context) -> Verdict {
    check_start(item.key, context)?;
    match item.key.item_type {
        ItemType::EXTENT_DATA_REF => check_data_refs(item, context),
        ItemType::SHARED_DATA_REF => {
            item.ensure_len(size_of::<SharedDataRef>())?;
            check_parent(item.key.offset, context)
        }
        ItemType::SHARED_BLOCK_REF => {
            item.ensure_len(0)?;
            check_parent(item.key.offset, context)
        }
        _ => item.ensure_len(0),
    }
}

fn check_data_refs(item: &Item<'_>, context: &Context) -> Verdict {
    let refs = <[ExtentDataRef]>::ref_from_bytes(item.data)
        .map_err(|_| format!("{} bytes are no whole number of references", item.data.len()))?;
    refs.iter().try_for_each(|data_ref| check_back_ref(&BackRef::from(data_ref), context))
}
