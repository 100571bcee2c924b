//! Ids of subvolumes and inode numbers that are in use or were.
//!
//! # Invariants
//! - As long as the file system is open, both only rise. The kernel caches a mount's inodes by
//!   number, and must not take a new one for a cached one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_btree::LiveTree;
use larder_format::{ItemType, Key, objectid};
use larder_locks::RankedMutexGuard;
use larder_locks::rank::SUBVOLUMES;
use larder_transaction::{Items, TreeItems};
use parking_lot::Mutex;

use crate::changed::Changed;
use crate::error::{Error, Result};

/// The highest numbers in use so far.
#[derive(Default)]
pub(crate) struct Ids {
    /// The highest id of a subvolume.
    last_subvolume: AtomicU64,
    /// For each subvolume that was open.
    of_subvolumes: Mutex<HashMap<u64, InodeNumbers>>,
}

/// The inode number that a subvolume assigns next.
#[derive(Clone)]
pub(crate) struct InodeNumbers(Arc<AtomicU64>);

impl Ids {
    /// The inode numbers of a subvolume, from its tree and from earlier assignments.
    pub(crate) fn inode_numbers(&self, tree: &Arc<LiveTree>) -> Changed<InodeNumbers> {
        if let Some(numbers) = self.of_subvolumes.lock().get(&tree.id()) {
            return Ok(numbers.clone());
        }
        let next = last_objectid(tree)?.max(objectid::FIRST_FREE) + 1;
        let numbers = InodeNumbers(Arc::new(AtomicU64::new(next)));
        // Another thread may have been faster.
        Ok(self.of_subvolumes.lock().entry(tree.id()).or_insert(numbers).clone())
    }

    /// An id that no subvolume has, nor has had since the file system was opened.
    pub(crate) fn next_subvolume(
        &self,
        _subvolumes: &RankedMutexGuard<'_, (), SUBVOLUMES>,
        root_tree: &Arc<LiveTree>,
    ) -> Result<u64> {
        let last_there = last_objectid(root_tree)?;
        let last = last_there.max(objectid::FIRST_FREE - 1).max(self.last_subvolume.load(Relaxed));
        let id = checked(last + 1)?;
        self.last_subvolume.store(id, Relaxed);
        Ok(id)
    }

    /// A subvolume is gone.
    pub(crate) fn forget(&self, subvolume: u64) {
        self.of_subvolumes.lock().remove(&subvolume);
    }
}

impl InodeNumbers {
    /// An inode number that was never used.
    pub(crate) fn next(&self) -> Result<u64> {
        checked(self.0.fetch_add(1, Relaxed))
    }
}

/// The highest objectid in a tree that is one of inodes or subvolumes.
fn last_objectid(tree: &Arc<LiveTree>) -> Changed<u64> {
    let last = Key::new(objectid::LAST_FREE, ItemType(u8::MAX), u64::MAX);
    let found = TreeItems::new(tree.clone()).at_or_before(last)?;
    Ok(found.map_or(0, |(key, _)| key.objectid))
}

fn checked(number: u64) -> Result<u64> {
    let is_valid = (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&number);
    if is_valid { Ok(number) } else { Err(Error::NumbersExhausted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn numbers_end_and_say_so() {
        let numbers = InodeNumbers(Arc::new(AtomicU64::new(objectid::LAST_FREE)));
        assert_eq!(numbers.next().expect("the last one"), objectid::LAST_FREE);
        let error = numbers.next().expect_err("none is left");
        assert!(matches!(error, Error::NumbersExhausted), "{error}");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
