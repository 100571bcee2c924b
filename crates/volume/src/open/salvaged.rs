//! Volumes of damaged file systems: with chunks from elsewhere, and blocks in the place of lost ones.

use std::sync::Arc;

use larder_device::Device;
use larder_format::Logical;
use larder_format::feature::check_readable;
use larder_format::item::DevItem;

use super::identify::GivenDevices;
use super::{OpenError, OpenOptions, StateRoot};
use crate::chunk::ChunkMap;
use crate::stand_ins::StandIns;
use crate::volume::Volume;

impl Volume {
    /// A volume with these chunks and devices in place of those in the chunk tree, which cannot be
    /// read. Of `options` only `write`, `rescue` and `read_policy` count. For reading, devices may
    /// be missing.
    ///
    /// # Errors
    /// If a device has no sound superblock, the devices do not belong together, or the options
    /// forbid what they are.
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
        let mut volume =
            Self::assemble(superblock, members, chunks, options.write, options.read_policy);
        volume.rescue = options.rescue;
        let checked =
            if options.write { volume.check_devices(options) } else { volume.check_stripes() };
        checked?;
        Ok(volume)
    }

    /// The same volume in the state that begins at `root`, with blocks in the place of lost ones. A
    /// writer of trees replaces the blocks that [`Volume::is_as_stored`] denies.
    #[must_use]
    pub fn with_stand_ins(mut self, root: &StateRoot, stand_ins: Arc<dyn StandIns>) -> Self {
        self.set_root(root);
        self.stand_ins = Some(stand_ins);
        self
    }

    /// Whether every copy of a tree block on the devices is this one. Without stand-ins a block that
    /// was read is taken for stored.
    pub fn is_as_stored(&self, logical: Logical, block: &[u8]) -> bool {
        let mut copy = vec![0; block.len()];
        let copies = self.copies(logical);
        let mut is_copy =
            |number| self.read_copy(logical, number, &mut copy).is_ok() && copy == block;
        self.stand_ins.is_none() || (copies > 0 && (0..copies).all(&mut is_copy))
    }

    /// Whether items with this objectid may be missing from a tree, or out of date, since blocks of
    /// it are lost.
    pub fn doubts(&self, tree: u64, objectid: u64) -> bool {
        self.stand_ins.as_ref().is_some_and(|it| it.doubts(tree, objectid))
    }
}
