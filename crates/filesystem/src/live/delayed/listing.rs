//! Listing a directory with queued items.

use larder_btree::{Range, Readahead, TreeError, TreeView};
use larder_format::Key;

use crate::live::delayed::queued::Queued;
use crate::live::inode::LiveInode;

/// Items of the tree that are listed at once, while the directory cannot change.
const ITEMS_AT_ONCE: usize = 128;

impl LiveInode {
    /// Calls `visit` with some index items of this directory from the index `from` on, in order,
    /// and with errors of the tree. Returns the index of the rest.
    ///
    /// The items are those of one moment; a thread that locks the state of the inode keeps other
    /// threads from changing names in between.
    pub(crate) fn visit_index(
        &self,
        from: u64,
        mut visit: impl FnMut(Result<(u64, &[u8]), TreeError>),
    ) -> Option<u64> {
        let slot = self.delayed.lock();
        let queued = slot.as_deref();
        let mut items = self.index_range(from);
        let mut next = from;
        for _ in 0..ITEMS_AT_ONCE {
            match items.next_item() {
                Ok(Some((Key { offset: index, .. }, item))) => {
                    visit_queued(queued, next, index, &mut visit);
                    if !queued.is_some_and(|queued| queued.index.is_deleted(index)) {
                        visit(Ok((index, item)));
                    }
                    next = index.checked_add(1)?;
                }
                Ok(None) => {
                    visit_queued(queued, next, u64::MAX, &mut visit);
                    return None;
                }
                Err(error) => {
                    // The next readable item is there, if it is still in this directory.
                    let behind = error.upper.filter(|upper| *upper < self.index_key(u64::MAX));
                    let behind = behind.map(|upper| upper.offset).filter(|behind| *behind > next);
                    visit_queued(queued, next, behind.map_or(u64::MAX, |b| b - 1), &mut visit);
                    visit(Err(error));
                    return behind;
                }
            }
        }
        Some(next)
    }

    fn index_range(&self, from: u64) -> Range {
        let keys = self.index_key(from)..=self.index_key(u64::MAX);
        TreeView::Live(self.tree().clone()).range(keys, Readahead::Forward)
    }
}

/// Visits the items to be inserted from `first` to `last`.
fn visit_queued(
    queued: Option<&Queued>,
    first: u64,
    last: u64,
    visit: &mut impl FnMut(Result<(u64, &[u8]), TreeError>),
) {
    let queued = queued.filter(|_| first <= last);
    let items = queued.into_iter().flat_map(|queued| queued.index.insertions(first, last));
    items.for_each(|item| visit(Ok(item)));
}
