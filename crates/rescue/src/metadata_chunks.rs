//! Where the tree blocks of a block group lie: where those in it were found.
//!
//! A block says its logical address, and the scan its place on a device. So each block votes for
//! the address at which its stripe would begin.

use std::collections::{BTreeMap, HashMap};

use larder_format::Logical;
use larder_format::item::DevItem;
use larder_volume::Chunk;

use crate::blocks::Blocks;
use crate::sequence::{self, Group};

/// Votes for devices and addresses, of one stripe.
type Votes = HashMap<(u64, u64), u32>;

/// The votes for each stripe of a chunk.
fn votes(blocks: &Blocks, chunk: &Chunk) -> Vec<Votes> {
    let mut votes = vec![Votes::new(); chunk.stripes().len()];
    let first = blocks.all().partition_point(|block| block.logical < chunk.logical().0);
    let own = blocks.all()[first..].iter().take_while(|block| block.logical < chunk.end().0);
    for block in own {
        let devid = blocks.evidence.members[block.member as usize].devid;
        let segment = chunk.segment(Logical(block.logical), 1);
        for address in chunk.addresses(&segment) {
            let offset = address.physical.0 - chunk.stripes()[address.stripe].physical.0;
            if let Some(base) = block.physical.checked_sub(offset) {
                *votes[address.stripe].entry((devid, base)).or_default() += 1;
            }
        }
    }
    votes
}

/// The same chunk with its stripes in the order that its blocks show.
pub(crate) fn in_order(blocks: &Blocks, chunk: Chunk) -> Chunk {
    if chunk.stripes().len() < 2 || !chunk.is_striped() {
        return chunk;
    }
    let votes = votes(blocks, &chunk);
    let extents = chunk.stripes().iter().map(|stripe| (stripe.devid, stripe.physical.0));
    let extents: Vec<(u64, u64)> = extents.collect();
    let score = |votes: &Votes| {
        extents.iter().map(|extent| votes.get(extent).copied().unwrap_or(0)).collect()
    };
    sequence::reordered(chunk, &votes.iter().map(score).collect::<Vec<Vec<u32>>>())
}

/// The chunks of block groups of which no extent is known.
pub(crate) fn find(
    blocks: &Blocks,
    devices: &BTreeMap<u64, DevItem>,
    groups: &[Group],
) -> Vec<Chunk> {
    let members = &blocks.evidence.members;
    let place = |group| {
        let shape = sequence::shape(group, devices)?;
        let votes = votes(blocks, &shape).into_iter().enumerate();
        let votes = votes.map(|(stripe, votes)| ((0, stripe), votes)).collect();
        sequence::place(&shape, 0, &votes, members, devices)
    };
    groups.iter().filter_map(place).collect()
}
