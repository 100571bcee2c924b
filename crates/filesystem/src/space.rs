//! What space is used for.

use larder_format::feature::CompatRoFlags;
use larder_format::item::BlockGroupItem;
use larder_format::{BlockGroupFlags, ItemType, Key, Logical, objectid, read_exact_item};

use larder_transaction::space::Group;

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;

/// A block group: the use that is made of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    /// Where it starts.
    pub logical: Logical,
    /// Length in bytes of logical address space.
    pub len_bytes: u64,
    /// Bytes that extents use.
    pub used_bytes: u64,
    /// Type and profile.
    pub flags: BlockGroupFlags,
    /// Bytes that it takes on all devices together.
    pub raw_bytes: u64,
}

impl BlockGroup {
    /// A block group as it is in the running transaction.
    fn of_group(group: &Group) -> Self {
        let chunk = group.chunk();
        Self {
            logical: group.start(),
            len_bytes: group.len_bytes(),
            used_bytes: group.used(),
            flags: group.flags(),
            raw_bytes: chunk.bytes_per_stripe() * chunk.stripes().len() as u64,
        }
    }
}

impl Filesystem {
    /// All block groups in the order of their addresses.
    ///
    /// Every chunk has one under a key that the chunk gives away, so that nothing else of the extent
    /// tree is read.
    pub fn block_groups(&self) -> Result<Vec<BlockGroup>> {
        if let Some(writer) = self.try_writer() {
            let groups = writer.manager().space().groups();
            return Ok(groups.iter().map(|group| BlockGroup::of_group(group)).collect());
        }
        let has_own_tree =
            self.superblock().compat_ro_flags().contains(CompatRoFlags::BLOCK_GROUP_TREE);
        let id = if has_own_tree { objectid::BLOCK_GROUP_TREE } else { objectid::EXTENT_TREE };
        let tree = self.tree(id)?;
        let mut groups = Vec::new();
        for chunk in self.volume().chunks().iter() {
            let (logical, len_bytes) = (chunk.logical(), chunk.len_bytes());
            let key = Key::new(logical.0, ItemType::BLOCK_GROUP_ITEM, len_bytes);
            let item = tree.get(key)?.ok_or(Error::MissingItem { tree: id, key })?;
            let item: &BlockGroupItem =
                read_exact_item(&item).map_err(|problem| Error::item(id, key, problem))?;
            groups.push(BlockGroup {
                logical,
                len_bytes,
                used_bytes: item.used.get(),
                flags: item.flags(),
                raw_bytes: chunk.bytes_per_stripe() * chunk.stripes().len() as u64,
            });
        }
        Ok(groups)
    }
}
