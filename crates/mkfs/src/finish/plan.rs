//! Addresses for tree blocks before they are built.

use larder_format::{Key, Logical, SpaceKind};

use crate::MkfsError;
use crate::image::{BlockRecord, Image};
use crate::settings::Settings;
use crate::space::{BlockGroup, Space};
use crate::tree::{BlockSink, OpenNode, TreeRoot};

/// Tree blocks that stay free in a file system that is as small as it can be: one transaction has
/// room until the devices are longer again. To these comes a share of those that are used.
const SPARE_BLOCKS: u64 = 64;
const SPARE_SHARE: u64 = 32;

/// Levels and first keys of a tree's blocks, in the order in which they are stored.
pub(crate) type Shape = Vec<(u8, Key)>;

/// Where the blocks of the last trees will be.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Space with these blocks allocated, and devices of their final size.
    pub(crate) space: Space,
    /// By owner, blocks in the order in which they are stored.
    trees: Vec<(u64, Vec<BlockRecord>)>,
}

impl Plan {
    /// One leaf for each tree.
    pub(crate) fn smallest(
        space: &Space,
        owners: &[u64],
        settings: &Settings,
    ) -> Result<Self, MkfsError> {
        let leaf = vec![(0, Key::MIN)];
        let shapes = owners.iter().map(|owner| (*owner, leaf.clone())).collect();
        Self::make(space, shapes, &mut 0, settings)
    }

    /// Places trees of these shapes. In a file system that is as small as it can be, those of
    /// metadata get a block group of their own, for as many blocks as they ever had: with a group
    /// that also becomes smaller, places of superblocks could come and go with its length.
    pub(crate) fn make(
        space: &Space,
        shapes: Vec<(u64, Shape)>,
        most_blocks: &mut u64,
        settings: &Settings,
    ) -> Result<Self, MkfsError> {
        let mut space = space.clone();
        if settings.shrink {
            let is_metadata =
                |(owner, _): &&(u64, Shape)| SpaceKind::of_tree(*owner) == SpaceKind::Metadata;
            let lens = shapes.iter().filter(is_metadata).map(|(_, shape)| shape.len() as u64);
            *most_blocks = lens.sum::<u64>().max(*most_blocks);
            let blocks = *most_blocks + spare_blocks(&space, settings);
            space.add_group_of(SpaceKind::Metadata, blocks, settings)?;
        }
        let trees: Vec<_> = shapes
            .into_iter()
            .map(|(owner, shape)| {
                let usage = SpaceKind::of_tree(owner);
                let place = |(level, first_key)| {
                    let logical = space.allocate_block(usage, settings)?;
                    Ok(BlockRecord { logical, owner, level, first_key })
                };
                Ok((owner, shape.into_iter().map(place).collect::<Result<_, MkfsError>>()?))
            })
            .collect::<Result<_, MkfsError>>()?;
        if settings.shrink {
            space.shrink_devices();
        }
        Ok(Self { space, trees })
    }

    pub(crate) fn blocks_of(&self, owner: u64) -> &[BlockRecord] {
        self.trees.iter().find(|(tree, _)| *tree == owner).map_or(&[], |(_, blocks)| blocks)
    }

    /// All planned blocks in the order of their addresses.
    pub(crate) fn sorted_blocks(&self) -> Vec<BlockRecord> {
        let mut blocks: Vec<_> =
            self.trees.iter().flat_map(|(_, blocks)| blocks).copied().collect();
        blocks.sort_unstable_by_key(|block| block.logical);
        blocks
    }

    /// The root of a planned tree, which is stored last; `None` if there is no such tree.
    pub(crate) fn root_of(&self, owner: u64) -> Option<TreeRoot> {
        let blocks = self.blocks_of(owner);
        let root = blocks.last()?;
        Some(TreeRoot { bytenr: root.logical, level: root.level, blocks: blocks.len() as u64 })
    }

    /// Whether the trees were planned with these shapes.
    pub(crate) fn has_shapes(&self, shapes: &[(u64, Shape)]) -> bool {
        let planned = self.trees.iter().map(|(owner, blocks)| {
            (*owner, blocks.iter().map(|block| (block.level, block.first_key)).collect())
        });
        planned.eq(shapes.iter().cloned())
    }
}

fn spare_blocks(space: &Space, settings: &Settings) -> u64 {
    let of_trees = space.groups().iter().filter(|group| group.holds_trees());
    let used_bytes: u64 = of_trees.map(BlockGroup::used_bytes).sum();
    SPARE_BLOCKS + used_bytes / settings.node_size as u64 / SPARE_SHARE
}

/// Assigns the planned addresses to the blocks of one tree.
pub(super) struct PlannedSink<'a, 'i> {
    planned: &'a [BlockRecord],
    shape: Shape,
    /// The destination of the blocks, if they are written.
    image: Option<&'a mut Image<'i>>,
}

impl<'a, 'i> PlannedSink<'a, 'i> {
    pub(super) fn new(planned: &'a [BlockRecord], image: Option<&'a mut Image<'i>>) -> Self {
        Self { planned, shape: Shape::new(), image }
    }

    pub(super) fn into_shape(self) -> Shape {
        self.shape
    }
}

impl BlockSink for PlannedSink<'_, '_> {
    /// Blocks beyond the plan get no address, since another plan follows.
    fn store(&mut self, block: &mut OpenNode) -> Result<Logical, MkfsError> {
        let logical =
            self.planned.get(self.shape.len()).map_or(Logical(0), |record| record.logical);
        let record = block.record(logical);
        self.shape.push((record.level, record.first_key));
        if let Some(image) = &mut self.image {
            image.write_block(logical, block)?;
        }
        Ok(logical)
    }
}
