//! What changes ask of their leaf.

use larder_format::Key;

use super::leaf::weight;
use super::path::Path;

/// What a leaf is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
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
    /// Removing the items of the search's keys that follow each other without a gap.
    DeleteRun,
    /// Giving the item another key.
    SetKey,
    /// Merging the leaf with a neighbour if it has become small.
    Merge,
}

impl Intent {
    /// Bytes that the leaf may have to take in, whatever is there.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::Insert { bytes } | Self::Grow { bytes } => bytes,
            Self::Put { len } => weight(len),
            Self::Replace { len } => len,
            // An item's length is known only once it is found.
            Self::Duplicate => usize::MAX,
            _ => 0,
        }
    }

    /// Bytes that the leaf has to take in, given what is there; `None` if the change cannot be made.
    pub(super) fn bytes_at(self, path: &Path<'_>) -> Option<usize> {
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

    /// Whether more than room and the first key decide what the change does above the leaf.
    pub(super) fn may_reach_up(self) -> bool {
        matches!(self, Self::Delete { .. } | Self::DeleteRun | Self::SetKey | Self::Merge)
    }
}
