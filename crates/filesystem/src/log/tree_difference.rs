//! The difference between a tree and the last commit's.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use larder_btree::{Cursor, LiveCursor, LiveTree, Readahead, Tree};
use larder_format::Key;

use crate::changed::Changed;

/// An item that only one of the trees has. A changed item is in both.
#[derive(Clone, Copy)]
pub(crate) enum Difference<'a> {
    /// It is there now.
    Now(Key, &'a [u8]),
    /// It was there then.
    Then(Key, &'a [u8]),
}

/// Calls `visit` with the differences among the items with these keys in order of keys; for the
/// same key, the old item comes first. Skips leaves that both trees share. Ends early if `visit`
/// breaks.
pub(crate) fn differences(
    live: &Arc<LiveTree>,
    committed: &Tree,
    keys: RangeInclusive<Key>,
    mut visit: impl FnMut(Difference<'_>) -> Changed<ControlFlow<()>>,
) -> Changed<()> {
    let first = *keys.start();
    let is_its = |key: &Key| keys.contains(key);
    let (mut now, mut then) = (live.cursor(Readahead::None), committed.cursor(Readahead::None));
    now.seek(first)?;
    then.seek(first)?;
    loop {
        let now_item = now.item().filter(|(key, _)| is_its(key));
        let then_item = then.item().filter(|(key, _)| is_its(key));
        match (now_item, then_item) {
            (None, None) => return Ok(()),
            (Some((now_key, now_data)), Some((then_key, then_data))) if now_key == then_key => {
                if is_same_leaf(&now, &then) {
                    now.next_leaf()?;
                    then.next_leaf()?;
                    continue;
                }
                if now_data != then_data
                    && (visit(Difference::Then(then_key, then_data))?.is_break()
                        || visit(Difference::Now(now_key, now_data))?.is_break())
                {
                    return Ok(());
                }
                now.next()?;
                then.next()?;
            }
            (Some((key, data)), other) if other.is_none_or(|(then_key, _)| key < then_key) => {
                if visit(Difference::Now(key, data))?.is_break() {
                    return Ok(());
                }
                now.next()?;
            }
            (_, Some((key, data))) => {
                if visit(Difference::Then(key, data))?.is_break() {
                    return Ok(());
                }
                then.next()?;
            }
            (Some(_), None) => unreachable!("it was the lesser"),
        }
    }
}

fn is_same_leaf(now: &LiveCursor, then: &Cursor) -> bool {
    match (now.item_ref(), then.item_ref()) {
        (Some(now), Some(then)) => now.leaf().logical() == then.leaf().logical(),
        _ => false,
    }
}
