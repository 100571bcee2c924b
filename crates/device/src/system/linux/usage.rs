//! The uses of a file or block device that the kernel knows of.

use std::path::{Path, PathBuf};

use super::{Identity, block, loops, mounts};
use crate::usage::{InUse, Link, MAX_CHAIN, Mounts};

/// The node of the partition that takes `len_bytes` from `offset` on of the disk at `path`, if that is
/// a block device and the kernel knows this partition.
pub fn partition_node(path: impl AsRef<Path>, offset: u64, len_bytes: u64) -> Option<PathBuf> {
    let Identity::Block { rdev } = Identity::of_path(path.as_ref())? else { return None };
    let partition = block::partition_at(rdev, offset, len_bytes)?;
    Some(block::node_path(partition)).filter(|node| node.exists())
}

/// A kernel's use of `identity`.
pub(crate) fn find_use(identity: Identity, mounts: Mounts) -> Option<InUse> {
    find_use_within(identity, mounts, MAX_CHAIN)
}

fn find_use_within(identity: Identity, mounts: Mounts, steps: usize) -> Option<InUse> {
    let attached = loops::attached_to(identity);
    if let Some(by) = direct_use(identity, &attached.stand_ins, mounts) {
        return Some(by);
    }
    let steps = steps.checked_sub(1)?;
    let follow = |link, rdev| {
        let then = find_use_within(Identity::Block { rdev }, mounts, steps).map(Box::new);
        InUse::Linked { link, other: block::node_path(rdev), then }
    };
    if let Some(rdev) = attached.devices.first() {
        return Some(follow(Link::AttachedAs, *rdev));
    }
    let Identity::Block { rdev } = identity else { return None };
    if let Some(holder) = block::holders(rdev).first() {
        return Some(follow(Link::HeldBy, *holder));
    }
    // A partition by itself is no use; one in use is.
    block::partitions(rdev)
        .into_iter()
        .map(|partition| follow(Link::Partition, partition))
        .find(|by| matches!(by, InUse::Linked { then: Some(_), .. }))
}

/// A use without another device: a mount, perhaps through a stand-in, or swap space.
fn direct_use(identity: Identity, stand_ins: &[u64], mounts: Mounts) -> Option<InUse> {
    let stand_ins = stand_ins.iter().map(|rdev| Identity::Block { rdev: *rdev });
    let sources: Vec<Identity> = [identity].into_iter().chain(stand_ins).collect();
    if let Some(at) = mounts::mount_point(&sources, mounts) {
        return Some(InUse::Mounted { at: Some(at) });
    }
    if let Identity::Block { rdev } = identity
        && let Some(members) = block::btrfs_members(rdev)
    {
        return Some(InUse::Mounted { at: mounts::mount_point(&members, Mounts::All) });
    }
    mounts::is_swap(identity).then_some(InUse::Swap)
}
