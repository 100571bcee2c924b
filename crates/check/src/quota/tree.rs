//! The quota tree.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{
    QGROUP_LEVEL_SHIFT, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_status_flags,
};
use larder_format::{ItemType, read_exact_item};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{QuotaEvidence, QuotaGroupId};
use crate::report::Location;

/// State of quotas as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) flags: u64,
    pub(crate) generation: u64,
    /// The transaction that switched simple quotas on.
    pub(crate) enable_generation: u64,
}

/// The contents of the quota tree.
#[derive(Debug, Default)]
pub(crate) struct QuotaTree {
    pub(crate) status: Option<Status>,
    pub(crate) groups: BTreeMap<u64, QgroupInfoItem>,
    limits: BTreeSet<u64>,
    /// Pairs of ids as stored: each membership has both directions.
    relations: BTreeSet<(u64, u64)>,
}

impl QuotaTree {
    /// Reads the quota tree; `None` if a part of it could not be read.
    pub(crate) fn read(
        context: &Context<'_>,
        forest: &mut Forest,
        root: &TreeRoot,
    ) -> Option<Self> {
        let mut tree = Self::default();
        let is_whole = for_each_item(context, forest, root, |item| {
            if let Err(problem) = tree.add(&item) {
                item.find(context, problem);
            }
        });
        if !is_whole {
            return None;
        }
        tree.check(context, Location::tree(root.tree));
        Some(tree)
    }

    fn add(&mut self, item: &Item<'_>) -> Result<(), QuotaEvidence> {
        let (id, bad) = (item.key.offset, |problem| QuotaEvidence::Format { problem });
        match item.key.item_type {
            ItemType::QGROUP_STATUS => {
                let (status, enabled) = QgroupStatusItem::parse(item.data).map_err(bad)?;
                if status.version.get() != 1 {
                    return Err(QuotaEvidence::Version { found: status.version.get() });
                }
                self.status = Some(Status {
                    flags: status.flags.get(),
                    generation: status.generation.get(),
                    enable_generation: enabled.unwrap_or(0),
                });
            }
            ItemType::QGROUP_INFO => {
                let info = read_exact_item::<QgroupInfoItem>(item.data).map_err(bad)?;
                self.groups.insert(id, *info);
            }
            ItemType::QGROUP_LIMIT => {
                read_exact_item::<QgroupLimitItem>(item.data).map_err(bad)?;
                self.limits.insert(id);
            }
            ItemType::QGROUP_RELATION => {
                self.relations.insert((item.key.objectid, id));
            }
            other => return Err(QuotaEvidence::Unexpected { found: other }),
        }
        Ok(())
    }

    fn check(&self, context: &Context<'_>, location: Location) {
        let find = |evidence: QuotaEvidence| context.find(location, evidence);
        let named = |id: &u64| QuotaGroupId(*id);
        if self.status.is_none() {
            find(QuotaEvidence::NoStatus);
        }
        for id in self.groups.keys().filter(|id| !self.limits.contains(*id)) {
            find(QuotaEvidence::NoLimits { group: named(id) });
        }
        for id in self.limits.iter().filter(|id| !self.groups.contains_key(*id)) {
            find(QuotaEvidence::NoCounts { group: named(id) });
        }
        for (member, group) in self.relations.iter().filter(|(a, b)| a < b) {
            for id in [member, group].into_iter().filter(|id| !self.groups.contains_key(*id)) {
                let (member, group, missing) = (named(member), named(group), named(id));
                find(QuotaEvidence::MemberOfNone { member, group, missing });
            }
        }
        for (a, b) in &self.relations {
            if !self.relations.contains(&(*b, *a)) {
                find(QuotaEvidence::RelationNotBack { from: named(a), to: named(b) });
            }
            if a >> QGROUP_LEVEL_SHIFT == b >> QGROUP_LEVEL_SHIFT {
                find(QuotaEvidence::OneLevel { from: named(a), to: named(b) });
            }
        }
    }

    /// Whether the counts are those of the last commit.
    pub(crate) fn is_counted(&self, context: &Context<'_>) -> bool {
        use qgroup_status_flags::{INCONSISTENT, ON, RESCAN};
        self.status.is_some_and(|status| {
            status.flags & (ON | INCONSISTENT | RESCAN) == ON
                && status.generation == context.generation()
        })
    }

    /// Whether these are simple quotas.
    pub(crate) fn is_simple(&self) -> bool {
        self.status.is_some_and(|status| status.flags & qgroup_status_flags::SIMPLE_MODE != 0)
    }

    /// The group of a subvolume and all groups above it.
    pub(crate) fn groups_of(&self, subvolume: u64) -> BTreeSet<u64> {
        let mut groups = BTreeSet::from([subvolume]);
        let mut fresh = vec![subvolume];
        while let Some(id) = fresh.pop() {
            let level = id >> QGROUP_LEVEL_SHIFT;
            for (_, parent) in self.relations.range((id, 0)..=(id, u64::MAX)) {
                if parent >> QGROUP_LEVEL_SHIFT > level && groups.insert(*parent) {
                    fresh.push(*parent);
                }
            }
        }
        groups
    }
}
