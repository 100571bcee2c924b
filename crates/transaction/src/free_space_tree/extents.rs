//! Free ranges as items of their own. Each function returns by how much their number changes.

use std::ops::Range;

use larder_format::{FormatError, ItemType, Key, Logical};

use super::range_key;
use crate::error::{Error, Result};
use crate::items::Items;

/// The range of an item.
pub(super) fn range_of(tree: &dyn Items, key: Key) -> Result<Range<u64>> {
    match key.objectid.checked_add(key.offset) {
        Some(end) if key.offset > 0 => Ok(key.objectid..end),
        _ => {
            let problem = FormatError::invalid("free space extent", "its length cannot be");
            Err(Error::item(tree.tree(), key, problem))
        }
    }
}

/// Removes a range from the one that contains it.
pub(super) fn take(tree: &mut dyn Items, range: &Range<u64>) -> Result<i64> {
    let last = Key::new(range.start, ItemType::FREE_SPACE_EXTENT, u64::MAX);
    let found = tree.at_or_before(last)?;
    let Some((key, _)) = found.filter(|(key, _)| key.item_type == ItemType::FREE_SPACE_EXTENT)
    else {
        return Err(not_free(range));
    };
    let free = range_of(tree, key)?;
    if free.end < range.end || free.start > range.start {
        return Err(not_free(range));
    }
    tree.remove(key)?;
    let mut more = -1;
    for rest in [free.start..range.start, range.end..free.end] {
        if !rest.is_empty() {
            tree.insert(range_key(&rest), &[])?;
            more += 1;
        }
    }
    Ok(more)
}

/// Adds a range to those of `group`, and merges it with its neighbours.
pub(super) fn give(tree: &mut dyn Items, group: &Range<u64>, range: &Range<u64>) -> Result<i64> {
    let (mut joined, mut more) = (range.clone(), 1);
    for (key, found) in neighbours(tree, group, range)? {
        if found.start < range.end && range.start < found.end {
            return Err(Error::block_group(
                Logical(group.start),
                format!("{range:?} is freed but {found:?} is free already"),
            ));
        }
        if found.end == range.start || found.start == range.end {
            joined = joined.start.min(found.start)..joined.end.max(found.end);
            tree.remove(key)?;
            more -= 1;
        }
    }
    tree.insert(range_key(&joined), &[])?;
    Ok(more)
}

/// The free ranges of `group` next to `range`: the last that begins before it ends, the one before
/// that, and the first after it.
fn neighbours(
    tree: &dyn Items,
    group: &Range<u64>,
    range: &Range<u64>,
) -> Result<Vec<(Key, Range<u64>)>> {
    let split = Key::new(range.start, ItemType(0), 0);
    let before = split.predecessor().map(|key| tree.at_or_before(key)).transpose()?.flatten();
    // The info item has the group's start as its objectid, as the first range may have.
    let behind = tree.at_or_after(Key::new(range.start, ItemType::FREE_SPACE_EXTENT, 0))?;
    let in_group =
        |key: &Key| key.item_type == ItemType::FREE_SPACE_EXTENT && group.contains(&key.objectid);
    let keys = before.into_iter().chain(behind).map(|(key, _)| key).filter(in_group);
    keys.map(|key| Ok((key, range_of(tree, key)?))).collect()
}

fn not_free(range: &Range<u64>) -> Error {
    Error::extent(
        Logical(range.start),
        format!("the free space tree says that {range:?} is in use"),
    )
}
