//! The trees that describe everything, themselves included.
//!
//! The extent tree has an item for each of its own blocks, the free space tree depends on the space
//! that these leave, and the root tree on the addresses of all roots. So their blocks are planned
//! first: number, levels and first keys. Trees are built on a plan, without being written, until
//! they match it.
//!
//! The plans reach that point: they begin with one leaf for each tree and only grow, since more
//! blocks never make a tree smaller (see `crate::space`), and each block adds far less than a block
//! of items. The number of blocks determines the sizes of all items, these determine which items
//! are in which block, and that determines levels and first keys.

mod block_groups;
mod chunk_tree;
mod extent_tree;
mod merge;
mod plan;
mod quota;
mod root_tree;
mod small_trees;
mod superblock;

use std::mem::take;

use larder_format::{Uuid, objectid};

use crate::image::{BlockRecord, ExtentRecord, Image};
use crate::populate::Filled;
use crate::settings::Settings;
use crate::source::Source;
use crate::tree::{Emit, TreeBuilder, TreeRoot};
use crate::{Features, MkfsError};

pub(crate) use plan::Plan;
use plan::{PlannedSink, Shape};
pub(crate) use superblock::{Content, add_content, dev_item, new_superblock};

/// More plans than any layout needs.
const MAX_PLANS: usize = 100;

/// Trees that are already built.
#[derive(Debug)]
pub(crate) struct EarlierTrees {
    /// Trees of subvolumes, in the order of the source.
    pub(crate) subvolumes: Vec<Filled>,
    pub(crate) checksums: TreeRoot,
}

/// The sources of the last trees' items, except the plan.
struct Layout<'a> {
    settings: &'a Settings,
    chunk_tree_uuid: Uuid,
    source: &'a Source,
    earlier: &'a EarlierTrees,
    /// Tree blocks of earlier trees, ascending.
    blocks: &'a [BlockRecord],
    /// Data extents, ascending.
    extents: &'a [ExtentRecord],
}

/// Emits the items of a tree on a plan.
type Items = fn(&Layout<'_>, &Plan, &mut Emit<'_>) -> Result<(), MkfsError>;

/// The last trees to build, with their items.
fn last_trees(features: Features) -> Vec<(u64, Items)> {
    let optional =
        |feature, owner, items: Items| features.contains(feature).then_some((owner, items));
    let always = |owner, items: Items| Some((owner, items));
    let trees = [
        always(objectid::CHUNK_TREE, chunk_tree::items),
        always(objectid::DATA_RELOC_TREE, small_trees::data_reloc_items),
        always(objectid::UUID_TREE, small_trees::uuid_items),
        optional(Features::QUOTA, objectid::QUOTA_TREE, quota::items),
        always(objectid::DEV_TREE, chunk_tree::device_items),
        optional(
            Features::BLOCK_GROUP_TREE,
            objectid::BLOCK_GROUP_TREE,
            block_groups::block_group_items,
        ),
        optional(
            Features::FREE_SPACE_TREE,
            objectid::FREE_SPACE_TREE,
            block_groups::free_space_items,
        ),
        always(objectid::EXTENT_TREE, extent_tree::items),
        always(objectid::ROOT_TREE, root_tree::items),
    ];
    trees.into_iter().flatten().collect()
}

/// Builds and queues the last trees. Returns their plan.
pub(crate) fn finish(
    image: &mut Image<'_>,
    source: &Source,
    earlier: &EarlierTrees,
) -> Result<Plan, MkfsError> {
    let settings = image.settings;
    let trees = last_trees(settings.features);
    let (blocks, extents) = (take(&mut image.blocks), take(&mut image.extents));
    let chunk_tree_uuid = image.chunk_tree_uuid();
    let (blocks, extents) = (&blocks[..], &extents[..]);
    let layout = Layout { settings, chunk_tree_uuid, source, earlier, blocks, extents };
    let owners: Vec<u64> = trees.iter().map(|(owner, _)| *owner).collect();
    let mut plan = Plan::smallest(&image.space, &owners, settings)?;
    let mut most_blocks = 0;
    for _ in 0..MAX_PLANS {
        let shapes = build_all(&layout, &plan, &trees, None)?;
        if plan.has_shapes(&shapes) {
            image.set_space(plan.space.clone());
            build_all(&layout, &plan, &trees, Some(image))?;
            return Ok(plan);
        }
        plan = Plan::make(&image.space, shapes, &mut most_blocks, settings)?;
    }
    unreachable!("plans only grow, and grow less each time")
}

/// Builds the trees on a plan, and queues their blocks if there is an image.
fn build_all(
    layout: &Layout<'_>,
    plan: &Plan,
    trees: &[(u64, Items)],
    mut image: Option<&mut Image<'_>>,
) -> Result<Vec<(u64, Shape)>, MkfsError> {
    let mut shapes = Vec::new();
    for (owner, items) in trees {
        let mut sink = PlannedSink::new(plan.blocks_of(*owner), image.as_deref_mut());
        let mut tree = TreeBuilder::new(*owner, layout.settings.node_size);
        items(layout, plan, &mut |key, data| tree.push(key, data, &mut sink))?;
        tree.finish(&mut sink)?;
        shapes.push((*owner, sink.into_shape()));
    }
    Ok(shapes)
}
