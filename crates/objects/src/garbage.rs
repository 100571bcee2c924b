//! Finding and deleting objects that no state needs.

use std::collections::HashSet;

use crate::content::Content;
use crate::copies;
use crate::error::ObjectsError;
use crate::flush::Next;
use crate::id::Kind;
use crate::lease;
use crate::writer::Writer;

/// What became of objects that no kept state needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Segments of which little was needed, which lies elsewhere now.
    pub rewritten: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Objects that stay for readers, until their time is over.
    pub waiting: u64,
}

impl Collected {
    /// What became of those of two devices.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            rewritten: self.rewritten + other.rewritten,
            deleted: self.deleted + other.deleted,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// Finds and deletes objects that no kept state needs. `tell` gets the number of objects that are
/// done, and the number of those that are known so far.
pub(crate) fn collect(
    writer: &Writer,
    content: &Content,
    tell: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Collected, ObjectsError> {
    writer.checkpoint()?;
    let rewritten = writer.rewrite_all(tell)?;
    let store = &*content.store;
    let manifest = writer.manifest();
    let objects = writer.objects();
    let known: HashSet<_> = objects
        .iter()
        .map(|object| object.id)
        .chain(manifest.tail.iter().map(|segment| segment.id))
        .collect();
    let mut left = Vec::new();
    for folder in Kind::ALL.map(Kind::folder) {
        for listed in store.list(folder)? {
            let Some((kind, id)) = Kind::parse(&listed.name) else { continue };
            // Objects of this writer may not be in any manifest yet. Earlier ones write no more.
            let is_left = id.epoch() < manifest.epoch && !known.contains(&id);
            if is_left && !(kind == Kind::Flush && Next::may_be_end(store, id)?) {
                left.push(listed.name);
            }
        }
    }
    copies::delete_old(store, writer.confirmed(), manifest.number)?;
    lease::in_force(store, writer.now())?;
    let (before, left_over) = (rewritten, left.len() as u64);
    let confirmed = writer.confirmed();
    confirmed.delete_each(store, &left, |deleted| tell(before + deleted, before + left_over))?;
    let before = before + left_over;
    let expired =
        writer.delete_expired(&mut |deleted, all| tell(before + deleted, before + all))?;
    let doomed = objects.iter().filter(|object| object.doomed.is_some()).count() as u64;
    let waiting = doomed.saturating_sub(expired);
    Ok(Collected { rewritten, deleted: left_over + expired, waiting })
}
