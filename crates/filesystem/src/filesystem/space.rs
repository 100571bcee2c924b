//! The use of space, and its limits.

use larder_format::feature::CompatRoFlags;
use larder_format::item::BlockGroupItem;
use larder_format::{BlockGroupFlags, ItemType, Key, Logical, Profile, objectid, read_exact_item};
use larder_transaction::space::Group;

use crate::error::{Error, Result};
use crate::filesystem::quota::QuotaGroup;
use crate::filesystem::spaces::{Space, Spaces};
use crate::handle::filesystem::Filesystem;

/// A block group: how a chunk is used.
#[doc(hidden)]
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
    /// A block group in the running transaction.
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

/// The capacity of a file system, in bytes of data with the profile for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All devices together.
    pub total_bytes: u64,
    /// Unused bytes, including those that only tree blocks can use.
    pub free_bytes: u64,
    /// Bytes for more data: those that are free in block groups, and in block groups that can still
    /// be created. One file can allocate all of them.
    pub available_bytes: u64,
}

/// Space for trees that is set aside for deletions and commits. It is in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalReserve {
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes that are in use, and come back later.
    pub used_bytes: u64,
}

impl Filesystem {
    /// The reserve; `None` in a file system that is open for reading.
    pub fn global_reserve(&self) -> Option<GlobalReserve> {
        let (total_bytes, used_bytes) = self.try_writer()?.manager().space().global_reserve();
        Some(GlobalReserve { total_bytes, used_bytes })
    }

    /// The capacity, as `df` shows it. Dirty data has its space already; space that was freed since
    /// the last commit counts as free.
    pub fn capacity(&self) -> Result<Capacity> {
        let groups = self.block_groups()?;
        let of_data = || groups.iter().filter(|group| group.flags.contains(BlockGroupFlags::DATA));
        let copies = |group: &BlockGroup| group.flags.profile().map_or(1, Profile::copies);
        let data_copies = of_data().map(copies).max().unwrap_or(1);
        let used = |group: &BlockGroup| group.used_bytes.saturating_mul(copies(group));
        let used_bytes = groups.iter().map(used).fold(0, u64::saturating_add);
        let devices = self.volume().devices();
        let raw_bytes = devices.iter().map(|device| device.dev_item().total_bytes.get());
        let raw_bytes = raw_bytes.fold(0, u64::saturating_add);
        let free_bytes = raw_bytes.saturating_sub(used_bytes) / data_copies;
        let available_bytes = match self.try_writer() {
            Some(writer) => writer.manager().space().available_data(),
            None => {
                let taken = groups.iter().map(|group| group.raw_bytes).fold(0, u64::saturating_add);
                let free = |group: &BlockGroup| group.len_bytes.saturating_sub(group.used_bytes);
                let unallocated = raw_bytes.saturating_sub(taken) / data_copies;
                of_data().map(free).fold(unallocated, u64::saturating_add)
            }
        };
        Ok(Capacity {
            total_bytes: raw_bytes / data_copies,
            free_bytes,
            available_bytes: available_bytes.min(free_bytes),
        })
    }

    /// All block groups in the order of their addresses.
    ///
    /// Each chunk has one, whose key follows from the chunk, so that nothing else of the extent
    /// tree is read.
    #[doc(hidden)]
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

    /// How much space is allocated for each purpose, and how much of that is used: data first, then
    /// system and metadata, each in the order of the profiles' numbers.
    pub fn space(&self) -> Result<Vec<Space>> {
        let mut spaces = Spaces::default();
        for group in self.block_groups()? {
            spaces.add(group.flags, group.len_bytes, group.used_bytes);
            if let Some(chunk) = self.volume().chunk_at(group.logical) {
                spaces.add_chunk(&chunk);
            }
        }
        Ok(spaces.in_order())
    }

    /// The counters of the quota group `id`: those of the last commit or, in a file system that is
    /// open for writing, the current ones. `None` without quotas or without the group.
    ///
    /// The group of a subvolume has the subvolume's id; other groups have their level in the top 16
    /// bits.
    pub fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>> {
        let tree_id = objectid::QUOTA_TREE;
        let tree_key = Key::new(tree_id, ItemType::ROOT_ITEM, 0);
        if self.root_tree().get(tree_key)?.is_none() {
            return Ok(None);
        }
        let tree = self.tree(tree_id)?;
        let key = Key::new(0, ItemType::QGROUP_INFO, id);
        let Some(info) = tree.get(key)? else { return Ok(None) };
        let limit = tree.get(Key::new(0, ItemType::QGROUP_LIMIT, id))?;
        let mut group = QuotaGroup::of_items(&info, limit.as_deref())
            .map_err(|problem| Error::item(tree_id, key, problem))?;
        let quotas = self.try_writer().and_then(|writer| writer.manager().quotas());
        if let Some(counted) = quotas.and_then(|quotas| quotas.counted(id)) {
            group.referenced_bytes = counted.referenced_bytes;
            group.exclusive_bytes = counted.exclusive_bytes;
        }
        Ok(Some(group))
    }
}
