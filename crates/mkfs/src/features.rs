//! Features by the names that `-O` and `-R` take.
//!
//! The defaults are those of btrfs-progs 6.19.

use std::fmt::Write as _;

use larder_format::feature::{CompatRoFlags, IncompatFlags};

use crate::MkfsError;

bitflags::bitflags! {
    /// Features that can be chosen when a file system is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u32 {
        /// Data and metadata share block groups.
        const MIXED_GROUPS = 1;
        /// Names of an inode past the inode reference item's room.
        const EXTENDED_REFS = 1 << 1;
        /// RAID5 and RAID6.
        const RAID56 = 1 << 2;
        /// Tree blocks' extent items without the first key.
        const SKINNY_METADATA = 1 << 3;
        /// Holes have no file extent items.
        const NO_HOLES = 1 << 4;
        /// Three or four copies.
        const RAID1C34 = 1 << 5;
        /// Quota groups.
        const QUOTA = 1 << 6;
        /// The free space tree.
        const FREE_SPACE_TREE = 1 << 7;
        /// Block groups in a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 8;
    }
}

impl Features {
    /// The features that btrfs-progs 6.19 turns on.
    pub const DEFAULT: Self = Self::EXTENDED_REFS
        .union(Self::SKINNY_METADATA)
        .union(Self::NO_HOLES)
        .union(Self::FREE_SPACE_TREE)
        .union(Self::BLOCK_GROUP_TREE);

    /// The incompatible features.
    pub(crate) fn incompat(self) -> IncompatFlags {
        let pairs = [
            (Self::MIXED_GROUPS, IncompatFlags::MIXED_GROUPS),
            (Self::EXTENDED_REFS, IncompatFlags::EXTENDED_IREF),
            (Self::RAID56, IncompatFlags::RAID56),
            (Self::SKINNY_METADATA, IncompatFlags::SKINNY_METADATA),
            (Self::NO_HOLES, IncompatFlags::NO_HOLES),
            (Self::RAID1C34, IncompatFlags::RAID1C34),
        ];
        pairs
            .into_iter()
            .filter(|(feature, _)| self.contains(*feature))
            .fold(IncompatFlags::MIXED_BACKREF, |flags, (_, flag)| flags | flag)
    }

    /// The read-only compatible features.
    pub(crate) fn compat_ro(self) -> CompatRoFlags {
        let mut flags = CompatRoFlags::empty();
        if self.contains(Self::FREE_SPACE_TREE) {
            flags |= CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
        }
        if self.contains(Self::BLOCK_GROUP_TREE) {
            flags |= CompatRoFlags::BLOCK_GROUP_TREE;
        }
        flags
    }

    /// The names of the features that are on, as in the summary.
    pub fn names(self) -> String {
        let on = KNOWN.iter().filter(|known| self.contains(known.feature));
        on.map(|known| known.name).collect::<Vec<_>>().join(", ")
    }
}

/// A feature as users see it.
struct Known {
    feature: Features,
    name: &'static str,
    /// The first kernel that has it.
    kernel: &'static str,
    /// The release of btrfs-progs that turned it on by default.
    default_since: Option<&'static str>,
    description: &'static str,
}

const KNOWN: [Known; 9] = [
    Known {
        feature: Features::MIXED_GROUPS,
        name: "mixed-bg",
        kernel: "2.6.37",
        default_since: None,
        description: "data and metadata share block groups",
    },
    Known {
        feature: Features::QUOTA,
        name: "quota",
        kernel: "3.4",
        default_since: None,
        description: "quota groups, with right counts from the start",
    },
    Known {
        feature: Features::EXTENDED_REFS,
        name: "extref",
        kernel: "3.7",
        default_since: Some("3.12"),
        description: "up to 65535 hard links of a file in one directory",
    },
    Known {
        feature: Features::RAID56,
        name: "raid56",
        kernel: "3.9",
        default_since: None,
        description: "RAID5 and RAID6 block groups",
    },
    Known {
        feature: Features::SKINNY_METADATA,
        name: "skinny-metadata",
        kernel: "3.10",
        default_since: Some("3.18"),
        description: "smaller extent items of tree blocks",
    },
    Known {
        feature: Features::NO_HOLES,
        name: "no-holes",
        kernel: "3.14",
        default_since: Some("5.15"),
        description: "no file extent items for holes",
    },
    Known {
        feature: Features::FREE_SPACE_TREE,
        name: "free-space-tree",
        kernel: "4.5",
        default_since: Some("5.15"),
        description: "free space kept in a tree (space_cache=v2)",
    },
    Known {
        feature: Features::RAID1C34,
        name: "raid1c34",
        kernel: "5.5",
        default_since: None,
        description: "RAID1 with three or four copies",
    },
    Known {
        feature: Features::BLOCK_GROUP_TREE,
        name: "block-group-tree",
        kernel: "6.1",
        default_since: Some("6.19"),
        description: "block groups in a tree of their own, for fast mounting",
    },
];

/// Further names of features.
const ALIASES: [(&str, &str); 2] = [("fst", "free-space-tree"), ("bgt", "block-group-tree")];

/// Features that btrfs-progs knows and that cannot be turned on, and why.
const REFUSED: [(&str, &str); 4] = [
    ("zoned", "zoned devices cannot be written to"),
    ("squota", "only quota groups with right counts from the start are made"),
    ("raid-stripe-tree", "it is for zoned devices, and experimental"),
    ("extent-tree-v2", "its format is not final"),
];

/// Features that were turned on and off by name; the others have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureChoice {
    on: Features,
    off: Features,
}

impl Default for FeatureChoice {
    fn default() -> Self {
        Self { on: Features::empty(), off: Features::empty() }
    }
}

impl FeatureChoice {
    /// Applies a list such as `quota,^no-holes`; later words win.
    pub fn apply(&mut self, list: &str) -> Result<(), MkfsError> {
        for entry in list.split(',').filter(|entry| !entry.is_empty()) {
            let (name, on) = entry.strip_prefix('^').map_or((entry, true), |name| (name, false));
            let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |two| two.1);
            let unknown = || match REFUSED.iter().find(|(refused, _)| *refused == name) {
                Some((_, reason)) => MkfsError::invalid(format!("no feature '{name}': {reason}")),
                None => MkfsError::invalid(format!("unknown feature '{name}'")),
            };
            if REFUSED.iter().any(|(refused, _)| *refused == name) && !on {
                continue;
            }
            let known = KNOWN.iter().find(|known| known.name == name);
            let feature = known.ok_or_else(unknown)?.feature;
            self.on.set(feature, on);
            self.off.set(feature, !on);
        }
        Ok(())
    }

    /// Whether `feature` was turned on by name.
    pub fn requested(self, feature: Features) -> bool {
        self.on.contains(feature)
    }

    /// The features that are on. The block group tree is a default that needs two others: if one of
    /// these is off and the tree was not requested, it is off as well.
    pub(crate) fn resolve(self) -> Result<Features, MkfsError> {
        let mut features = (Features::DEFAULT | self.on).difference(self.off);
        let needed = Features::FREE_SPACE_TREE | Features::NO_HOLES;
        if features.contains(Features::BLOCK_GROUP_TREE) && !features.contains(needed) {
            if self.requested(Features::BLOCK_GROUP_TREE) {
                let problem = "block-group-tree needs free-space-tree and no-holes";
                return Err(MkfsError::invalid(problem));
            }
            features.remove(Features::BLOCK_GROUP_TREE);
        }
        Ok(features)
    }

    /// What `-O list-all` prints: a line for each feature.
    pub fn list_all() -> String {
        KNOWN.iter().fold(String::new(), |mut text, known| {
            let Known { name, description, kernel, .. } = known;
            let default = known.default_since.map_or(String::new(), |v| format!(", default={v}"));
            let _ = writeln!(text, "{name:<20}- {description} (compat={kernel}{default})");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str) -> Result<Features, MkfsError> {
        let mut choice = FeatureChoice::default();
        choice.apply(list)?;
        choice.resolve()
    }

    #[test]
    fn names_turn_features_on_and_off() {
        assert_eq!(chosen("").unwrap(), Features::DEFAULT);
        assert_eq!(chosen("quota").unwrap(), Features::DEFAULT | Features::QUOTA);
        assert_eq!(
            chosen("^extref,quota,^quota").unwrap(),
            Features::DEFAULT.difference(Features::EXTENDED_REFS)
        );
        let error = chosen("zoned-out").unwrap_err();
        assert!(error.to_string().contains("'zoned-out'"), "{error}");
    }

    #[test]
    fn the_block_group_tree_is_off_without_its_features() {
        assert!(!chosen("^no-holes").unwrap().contains(Features::BLOCK_GROUP_TREE));
        assert!(chosen("^no-holes,block-group-tree").is_err());
    }
}
