//! The quota tree.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{
    QGROUP_LEVEL_SHIFT, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_status_flags,
};
use larder_format::{ItemType, read_exact_item};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::report::{Kind, Location};

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
            if let Err(what) = tree.add(&item) {
                item.find(context, Kind::QuotaItem, format_args!("{what}"));
            }
        });
        if !is_whole {
            return None;
        }
        tree.check(context, Location::tree(root.tree));
        Some(tree)
    }

    fn add(&mut self, item: &Item<'_>) -> Result<(), String> {
        let (id, text) = (item.key.offset, |error: larder_format::FormatError| error.to_string());
        match item.key.item_type {
            ItemType::QGROUP_STATUS => {
                let (status, enabled) = QgroupStatusItem::parse(item.data).map_err(text)?;
                if status.version.get() != 1 {
                    return Err(format!("version {}", status.version));
                }
                self.status = Some(Status {
                    flags: status.flags.get(),
                    generation: status.generation.get(),
                    enable_generation: enabled.unwrap_or(0),
                });
            }
            ItemType::QGROUP_INFO => {
                let info = read_exact_item::<QgroupInfoItem>(item.data).map_err(text)?;
                self.groups.insert(id, *info);
            }
            ItemType::QGROUP_LIMIT => {
                read_exact_item::<QgroupLimitItem>(item.data).map_err(text)?;
                self.limits.insert(id);
            }
            ItemType::QGROUP_RELATION => {
                self.relations.insert((item.key.objectid, id));
            }
            other => return Err(format!("{other} in the quota tree")),
        }
        Ok(())
    }

    fn check(&self, context: &Context<'_>, location: Location) {
        let find =
            |message: std::fmt::Arguments<'_>| context.find(Kind::QuotaItem, location, message);
        if self.status.is_none() {
            find(format_args!("there is no status item"));
        }
        for id in self.groups.keys().filter(|id| !self.limits.contains(*id)) {
            find(format_args!("group {} has no limits", Id(*id)));
        }
        for id in self.limits.iter().filter(|id| !self.groups.contains_key(*id)) {
            find(format_args!("group {} has limits and no counts", Id(*id)));
        }
        for (member, group) in self.relations.iter().filter(|(a, b)| a < b) {
            for id in [member, group].into_iter().filter(|id| !self.groups.contains_key(*id)) {
                find(format_args!("{} is in {}, but {} is none", Id(*member), Id(*group), Id(*id)));
            }
        }
        for (a, b) in &self.relations {
            if !self.relations.contains(&(*b, *a)) {
                find(format_args!("{} relates to {}, not back", Id(*a), Id(*b)));
            }
            if a >> QGROUP_LEVEL_SHIFT == b >> QGROUP_LEVEL_SHIFT {
                find(format_args!("{} and {} are of one level", Id(*a), Id(*b)));
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

/// The id of a quota group in its usual form: level and number.
pub(crate) struct Id(pub(crate) u64);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.0 & ((1 << QGROUP_LEVEL_SHIFT) - 1);
        write!(f, "{}/{number}", self.0 >> QGROUP_LEVEL_SHIFT)
    }
}
