//! Volumes of damaged file systems: with chunks from elsewhere, and blocks in the place of lost ones.

use std::sync::Arc;

use larder_device::Device;
use larder_format::feature::check_readable;
use larder_format::item::DevItem;

use super::identify::GivenDevices;
use super::{OpenError, OpenOptions, StateRoot};
use crate::chunk::ChunkMap;
use crate::stand_ins::StandIns;
use crate::volume::Volume;

impl Volume {
    /// A volume for reading, with these chunks and devices in place of those in the chunk tree,
    /// which cannot be read. Of `options` only `rescue` and `read_policy` count; devices may be
    /// missing.
    ///
    /// # Errors
    /// If a device has no sound superblock, or the devices do not belong together.
    pub fn open_without_chunk_tree(
        devices: Vec<Arc<dyn Device>>,
        options: &OpenOptions,
        chunks: ChunkMap,
        dev_items: &[DevItem],
    ) -> Result<Self, OpenError> {
        let found = GivenDevices::scan(devices, options.superblock_copy)?;
        let superblock = found.newest.clone();
        check_readable(&superblock)?;
        let (members, _) = found.into_members(dev_items)?;
        let mut volume = Self::assemble(superblock, members, chunks, false, options.read_policy);
        volume.rescue = options.rescue;
        volume.check_stripes()?;
        Ok(volume)
    }

    /// The same volume in the state that begins at `root`, with blocks in the place of lost ones.
    ///
    /// # Panics
    /// If the volume is writable.
    #[must_use]
    pub fn with_stand_ins(mut self, root: &StateRoot, stand_ins: Arc<dyn StandIns>) -> Self {
        assert!(!self.is_writable(), "only readers do without what is lost");
        self.set_root(root);
        self.stand_ins = Some(stand_ins);
        self
    }

    /// Whether items with this objectid may be missing from a tree, or out of date, since blocks of
    /// it are lost.
    pub fn doubts(&self, tree: u64, objectid: u64) -> bool {
        self.stand_ins.as_ref().is_some_and(|it| it.doubts(tree, objectid))
    }
}
