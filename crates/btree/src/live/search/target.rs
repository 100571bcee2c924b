//! The key that a search looks for, and the purpose of the search.

use larder_format::{Key, Node};

use crate::live::bytes::leaf::weight;
use crate::live::path::path::Path;

/// A key, and the purpose of a search for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'k> {
    pub(crate) key: Key,
    pub(crate) intent: Intent<'k>,
}

/// The purpose of a search: the use that the caller will make of the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent<'k> {
    /// Reading.
    Read,
    /// Changing an item without making it longer.
    Modify,
    /// A new item, or several in a row, of so many bytes with their headers.
    Insert { bytes: usize },
    /// An item of this length, new or in place of the one that is there.
    Put { len: usize },
    /// An item of this length in place of the one that is there.
    Replace { len: usize },
    /// Making the item longer by so many bytes, or splitting it with so many more.
    Grow { bytes: usize },
    /// A copy of the item, next to it.
    Duplicate,
    /// Removing items from the key to this one.
    Delete { last: Key },
    /// Removing the items of these keys that follow each other without a gap. The keys ascend, and
    /// the first is the one searched for.
    DeleteRun { keys: &'k [Key] },
    /// Giving the item another key.
    SetKey,
    /// Merging the leaf with a neighbour if it has become small.
    Merge,
}

impl Intent<'_> {
    /// The most bytes that the leaf may have to take in, in any case.
    pub(crate) fn most_bytes(self) -> usize {
        match self {
            Self::Insert { bytes } | Self::Grow { bytes } => bytes,
            Self::Put { len } => weight(len),
            Self::Replace { len } => len,
            // The search does not know an item's length before it finds the item.
            Self::Duplicate => usize::MAX,
            _ => 0,
        }
    }

    /// Bytes that the leaf has to take in, given the item that it has there; `None` if the change
    /// cannot happen.
    pub(crate) fn bytes_at(self, path: &Path<'_>) -> Option<usize> {
        let old_len = path.found.then(|| path.leaf().node().item_data(path.slot()).len());
        match (self, old_len) {
            (Self::Insert { bytes }, None) | (Self::Grow { bytes }, Some(_)) => Some(bytes),
            (Self::Put { len }, None) | (Self::Duplicate, Some(len)) => Some(weight(len)),
            (Self::Put { len } | Self::Replace { len }, Some(old_len)) => {
                Some(len.saturating_sub(old_len))
            }
            _ => None,
        }
    }

    /// How many items a removal takes from the path's place in the leaf on.
    pub(crate) fn removals_at(self, path: &Path<'_>) -> usize {
        let (leaf, slot) = (path.leaf().node(), path.slot());
        match self {
            Self::Delete { last } => end_slot(leaf, last).saturating_sub(slot),
            Self::DeleteRun { keys } => run_length(leaf, slot, keys),
            _ => 0,
        }
    }

    /// Whether the change may need blocks above the leaf even if the leaf has room and keeps its
    /// first key.
    pub(crate) fn may_reach_up(self) -> bool {
        matches!(self, Self::Delete { .. } | Self::DeleteRun { .. } | Self::SetKey | Self::Merge)
    }
}

/// How many of `keys` are the keys of a leaf's items from `slot` on.
fn run_length(leaf: Node<'_>, slot: usize, keys: &[Key]) -> usize {
    leaf.items()[slot..].iter().zip(keys).take_while(|(item, key)| item.key.get() == **key).count()
}

/// The first slot of a leaf whose key is greater than `last`.
fn end_slot(leaf: Node<'_>, last: Key) -> usize {
    leaf.items().partition_point(|item| item.key.get() <= last)
}
