//! A parsed EXTENT_ITEM or METADATA_ITEM, to be changed and assembled again.

use std::cmp::Reverse;

use larder_format::item::{BackRef, Extent, ExtentItem, TreeBlockInfo};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{FormatError, Key};
use zerocopy::IntoBytes;

use super::Referrer;

/// An extent item. Inline references are sorted as the format demands: types ascending, and within
/// a type by hash, root or parent descending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) refs: u64,
    pub(crate) generation: u64,
    pub(crate) flags: u64,
    pub(crate) tree_block_info: Option<TreeBlockInfo>,
    inline: Vec<BackRef>,
}

impl Record {
    /// An extent without references.
    pub(crate) fn new(generation: u64, flags: u64, tree_block_info: Option<TreeBlockInfo>) -> Self {
        Self { refs: 0, generation, flags, tree_block_info, inline: Vec::new() }
    }

    /// Reads an item.
    pub(crate) fn parse(key: Key, data: &[u8]) -> Result<Self, FormatError> {
        let extent = Extent::parse(key, data)?;
        let inline = extent.back_refs().map(|inline| Ok(inline?.back_ref));
        Ok(Self {
            refs: extent.item.refs.get(),
            generation: extent.item.generation.get(),
            flags: extent.item.flags.get(),
            tree_block_info: extent.tree_block_info.copied(),
            inline: inline.collect::<Result<_, FormatError>>()?,
        })
    }

    /// The item's data.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let item = ExtentItem {
            refs: self.refs.into(),
            generation: self.generation.into(),
            flags: self.flags.into(),
        };
        let mut bytes = Vec::with_capacity(self.len_bytes());
        bytes.extend(item.as_bytes());
        bytes.extend(self.tree_block_info.iter().flat_map(IntoBytes::as_bytes));
        self.inline.iter().for_each(|back_ref| back_ref.write_inline(&mut bytes));
        bytes
    }

    fn len_bytes(&self) -> usize {
        let info = self.tree_block_info.map_or(0, |_| size_of::<TreeBlockInfo>());
        let inline: usize = self.inline.iter().map(BackRef::inline_len_bytes).sum();
        size_of::<ExtentItem>() + info + inline
    }

    /// Whether the item can take one more inline reference. Items stay small compared to a leaf.
    pub(crate) fn has_room_for(&self, referrer: Referrer, nodesize: usize) -> bool {
        let limit = leaf_data_size(nodesize) / 16 - ITEM_HEADER_SIZE;
        self.len_bytes() + referrer.back_ref(1).inline_len_bytes() < limit
    }

    /// The count of an inline reference; `None` if there is none of this referrer.
    pub(crate) fn count_of(&self, referrer: Referrer) -> Option<u32> {
        self.position(referrer).map(|at| self.inline[at].count())
    }

    /// The count of all inline references of files in a subvolume.
    pub(crate) fn count_in_subvolume(&self, subvolume: u64) -> u64 {
        let is_its = |inline: &&BackRef| {
            Referrer::of(inline).is_some_and(|referrer| referrer.is_file_in(subvolume))
        };
        self.inline.iter().filter(is_its).map(|inline| u64::from(inline.count())).sum()
    }

    /// Sets the count of an inline reference, which appears with a first count and goes with 0. The
    /// caller updates the sum of references.
    pub(crate) fn set_count(&mut self, referrer: Referrer, count: u32) {
        match self.position(referrer) {
            Some(at) if count == 0 => drop(self.inline.remove(at)),
            Some(at) => self.inline[at] = referrer.back_ref(count),
            None => {
                let new = referrer.back_ref(count);
                let at = self.inline.partition_point(|other| order(other) <= order(&new));
                self.inline.insert(at, new);
            }
        }
    }

    fn position(&self, referrer: Referrer) -> Option<usize> {
        self.inline.iter().position(|inline| Referrer::of(inline) == Some(referrer))
    }
}

/// The sort key of inline references.
fn order(back_ref: &BackRef) -> (u8, Reverse<u64>) {
    (back_ref.item_type().0, Reverse(back_ref.sequence()))
}

#[cfg(test)]
mod tests {
    use larder_format::ItemType;
    use larder_format::item::{EXTENT_FLAG_DATA, EXTENT_FLAG_TREE_BLOCK};

    use super::*;

    #[test]
    fn a_record_survives_its_bytes() {
        let key = Key::new(1 << 20, ItemType::EXTENT_ITEM, 4096);
        let mut record = Record::new(7, EXTENT_FLAG_DATA, None);
        record.set_count(Referrer::File { root: 5, inode: 257, offset: 0 }, 2);
        record.set_count(Referrer::Leaf { parent: 1 << 22 }, 1);
        record.refs = 3;
        let bytes = record.to_bytes();
        assert_eq!(bytes.len(), record.len_bytes());
        assert_eq!(Record::parse(key, &bytes), Ok(record));
    }

    #[test]
    fn inline_references_are_sorted_by_type_and_then_descending() {
        let mut record = Record::new(7, EXTENT_FLAG_TREE_BLOCK, None);
        for parent in [300, 100, 200] {
            record.set_count(Referrer::Block { parent }, 1);
            record.set_count(Referrer::Tree { root: parent }, 1);
        }
        let expected = [300, 200, 100];
        let trees = expected.map(|root| BackRef::TreeBlock { root });
        let blocks = expected.map(|parent| BackRef::SharedBlock { parent });
        assert_eq!(record.inline, [trees, blocks].concat());
        record.set_count(Referrer::Tree { root: 200 }, 0);
        assert_eq!(record.count_of(Referrer::Tree { root: 200 }), None);
        assert_eq!(record.count_of(Referrer::Tree { root: 100 }), Some(1));
    }
}
