//! What the caller of a repair wants.

use larder_check::{Kind, Report};

use super::plan::Action;

/// What to do besides what findings ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Read all data, too, and mend copies of it.
    pub check_data_csum: bool,
    /// Build the extent tree, block groups and free space anew.
    pub init_extent_tree: bool,
    /// Compute every checksum anew from the data as it is.
    pub init_csum_tree: bool,
    /// Drop the caches of free space, or build the free space tree anew.
    pub clear_space_cache: bool,
    /// Build the tree of uuids anew.
    pub clear_uuid_tree: bool,
    /// Drop the log.
    pub zero_log: bool,
    /// Set the sizes of devices right.
    pub fix_device_size: bool,
    /// Accept data that matches no checksum as it is: it gets the checksum that it has. Needs
    /// [`check_data_csum`](Self::check_data_csum), which finds it.
    pub fix_data_checksum: bool,
    /// Answer only findings of which this is done; all if empty. Others may remain.
    pub only: &'static [Action],
    /// Findings that were there before may remain.
    pub partly: bool,
}

impl Wishes {
    /// Whether findings of a kind are to go.
    pub(super) fn chooses(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&Action::of(kind))
    }

    /// Whether what salvage finds may take the place of lost blocks.
    pub(super) fn chooses_blocks(&self) -> bool {
        self.only.is_empty() || self.only.contains(&Action::Chunks)
    }

    /// Whether superblocks may be made where there are none.
    pub(super) fn chooses_superblocks(&self) -> bool {
        self.chooses_blocks() || self.only.contains(&Action::Superblocks)
    }

    /// Whether findings of a kind are answered.
    pub(super) fn answers(&self, kind: Kind) -> bool {
        match Action::of(kind) {
            Action::Data => self.fix_data_checksum,
            Action::None => false,
            _ => self.chooses(kind),
        }
    }

    /// What is done about findings of a kind.
    pub(super) fn action(&self, kind: Kind) -> Action {
        match Action::of(kind) {
            action if self.answers(kind) => action,
            Action::Data if self.chooses(kind) => Action::Bits,
            _ => Action::None,
        }
    }

    /// Whether so many findings of a kind may remain.
    pub(super) fn allows(&self, kind: Kind, count: u64, before: &Report) -> bool {
        let may_remain = self.partly || !self.chooses(kind);
        may_remain && count <= before.count_of(kind)
    }

    /// Whether anything is to be done that no finding asks for.
    pub(super) fn is_any(&self) -> bool {
        self.init_extent_tree
            || self.init_csum_tree
            || self.clear_space_cache
            || self.clear_uuid_tree
            || self.zero_log
            || self.fix_device_size
    }
}
