//! Quota groups on disk: the quota tree is read when a file system is opened, and updated in
//! commits.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{
    QGROUP_LEVEL_SHIFT, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_status_flags,
};
use larder_format::{FormatError, ItemType, Key, read_exact_item};
use larder_locks::RankedMutex;
use zerocopy::{FromBytes, IntoBytes};

use super::{Counted, Group, Quotas};
use crate::error::{Error, Result};
use crate::items::Items;

const STATUS: Key = Key::new(0, ItemType::QGROUP_STATUS, 0);

impl Quotas {
    /// The groups that the quota tree has; `None` if quotas are off.
    pub(crate) fn load(tree: &dyn Items, nodesize: u32) -> Result<Option<Self>> {
        let Some(status) = tree.get(STATUS)? else { return Ok(None) };
        if flags_of(tree, &status)? & qgroup_status_flags::ON == 0 {
            return Ok(None);
        }
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        let mut members: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (key, data) in tree.range(Key::MIN..=Key::MAX)? {
            let bad = |problem| Error::item(tree.tree(), key, problem);
            match key.item_type {
                ItemType::QGROUP_INFO => {
                    let item: &QgroupInfoItem = read_exact_item(&data).map_err(bad)?;
                    groups.entry(key.offset).or_default().counted = Counted {
                        referenced_bytes: item.rfer.get(),
                        exclusive_bytes: item.excl.get(),
                    };
                }
                ItemType::QGROUP_LIMIT => {
                    let item: &QgroupLimitItem = read_exact_item(&data).map_err(bad)?;
                    groups.entry(key.offset).or_default().limit = *item;
                }
                // Both ends have one: that of the member has the lower group.
                ItemType::QGROUP_RELATION if level(key.objectid) < level(key.offset) => {
                    members.entry(key.objectid).or_default().insert(key.offset);
                }
                _ => {}
            }
        }
        for (id, group) in groups.iter_mut().filter(|(id, _)| level(**id) == 0) {
            group.above = all_above(*id, &members);
        }
        Ok(Some(Self { nodesize: nodesize.into(), groups: RankedMutex::new(groups) }))
    }

    /// Writes the groups' counts, marked as inconsistent. Part of a commit.
    pub(crate) fn write(&self, tree: &mut dyn Items, generation: u64) -> Result<()> {
        mark_inconsistent(tree)?;
        for (id, counted, limit) in self.take_changed() {
            let (rfer, excl) = (counted.referenced_bytes.into(), counted.exclusive_bytes.into());
            let generation = generation.into();
            let item = QgroupInfoItem { generation, rfer, rfer_cmpr: rfer, excl, excl_cmpr: excl };
            let info = Key::new(0, ItemType::QGROUP_INFO, id);
            if tree.get(info)?.is_some() {
                tree.replace(info, item.as_bytes())?;
                continue;
            }
            tree.insert(info, item.as_bytes())?;
            let key = Key::new(0, ItemType::QGROUP_LIMIT, id);
            if tree.get(key)?.is_none() {
                tree.insert(key, limit.as_bytes())?;
            }
        }
        Ok(())
    }

    fn take_changed(&self) -> Vec<(u64, Counted, QgroupLimitItem)> {
        let mut groups = self.groups.lock();
        let changed = groups.iter_mut().filter(|(_, group)| group.is_changed);
        let take = |(id, group): (&u64, &mut Group)| {
            group.is_changed = false;
            (*id, group.counted, group.limit)
        };
        changed.map(take).collect()
    }
}

/// Marks the groups as inconsistent, as the kernel does when it loses count.
fn mark_inconsistent(tree: &mut dyn Items) -> Result<()> {
    let Some(mut data) = tree.get(STATUS)? else { return Ok(()) };
    let flags = flags_of(tree, &data)?;
    if flags & qgroup_status_flags::INCONSISTENT != 0 {
        return Ok(());
    }
    if let Ok((item, _)) = QgroupStatusItem::mut_from_prefix(&mut data) {
        item.flags = (flags | qgroup_status_flags::INCONSISTENT).into();
    }
    tree.replace(STATUS, &data)
}

fn flags_of(tree: &dyn Items, status: &[u8]) -> Result<u64> {
    let problem = || FormatError::invalid("QgroupStatusItem", "it is too short");
    let item = QgroupStatusItem::ref_from_prefix(status)
        .map_err(|_| Error::item(tree.tree(), STATUS, problem()))?;
    Ok(item.0.flags.get())
}

fn level(group: u64) -> u64 {
    group >> QGROUP_LEVEL_SHIFT
}

/// The groups that a group is in, directly or through others. Levels rise on the way, so that it
/// ends.
fn all_above(group: u64, members: &BTreeMap<u64, BTreeSet<u64>>) -> BTreeSet<u64> {
    let mut above = BTreeSet::new();
    let mut next = vec![group];
    while let Some(group) = next.pop() {
        let unseen = members.get(&group).into_iter().flatten().filter(|id| above.insert(**id));
        next.extend(unseen.copied());
    }
    above
}
