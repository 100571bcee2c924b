//! All changes of the references to one extent that are not in the extent tree yet.

use std::collections::BTreeMap;

use larder_format::Key;

use crate::extent::Referrer;

/// The content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// File data.
    Data,
    /// A tree block.
    TreeBlock {
        /// Its level.
        level: u8,
        /// Its first key when it was allocated, for items without skinny metadata.
        first_key: Key,
    },
}

/// The queued changes of one extent's references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Length of the extent in bytes.
    pub len_bytes: u64,
    /// Its content.
    pub kind: ExtentKind,
    /// The extent was allocated and is not in the extent tree yet.
    pub is_new: bool,
    /// Its references disagree about what it is: its changes cannot be run.
    pub is_contradictory: bool,
    /// References to children of the tree block are by its address from now on, and not by its
    /// owner.
    pub sets_full_backref: bool,
    /// By how much the count of each referrer changes; never 0.
    changes: BTreeMap<Referrer, i64>,
}

impl Head {
    /// No changes yet.
    pub(crate) fn new(len_bytes: u64, kind: ExtentKind) -> Self {
        let changes = BTreeMap::new();
        Self {
            len_bytes,
            kind,
            is_new: false,
            is_contradictory: false,
            sets_full_backref: false,
            changes,
        }
    }

    /// Notes a reference to an extent of `len_bytes` and of `kind`.
    pub(crate) fn compare(&mut self, len_bytes: u64, kind: ExtentKind) {
        let is_same_kind = match (self.kind, kind) {
            (ExtentKind::Data, ExtentKind::Data) => true,
            (ExtentKind::TreeBlock { level, .. }, ExtentKind::TreeBlock { level: other, .. }) => {
                level == other
            }
            _ => false,
        };
        self.is_contradictory |= len_bytes != self.len_bytes || !is_same_kind;
    }

    /// Adds `count` references, or drops them if it is negative.
    pub(crate) fn change(&mut self, referrer: Referrer, count: i64) {
        let sum = self.changes.entry(referrer).or_insert(0);
        *sum += count;
        if *sum == 0 {
            self.changes.remove(&referrer);
        }
    }

    /// By how much the number of references changes.
    pub fn net(&self) -> i64 {
        self.changes.values().sum()
    }

    /// By how much the number of references of `referrer` changes.
    pub fn change_of(&self, referrer: Referrer) -> i64 {
        self.changes.get(&referrer).copied().unwrap_or(0)
    }

    /// By how much the number of references of files in a subvolume changes.
    pub fn change_of_subvolume(&self, subvolume: u64) -> i64 {
        let of_its =
            |(referrer, count): (&Referrer, &i64)| referrer.is_file_in(subvolume).then_some(*count);
        self.changes.iter().filter_map(of_its).sum()
    }

    /// How many items of the bookkeeping trees running this may insert at worst: one for each
    /// referrer that does not fit into the extent's item, and one for free space.
    pub(crate) fn insertions(&self) -> u64 {
        1 + self.changes.len() as u64
    }

    /// Whether there is nothing to do in the extent tree.
    pub fn touches_nothing(&self) -> bool {
        self.changes.is_empty() && !self.sets_full_backref
    }

    /// Referrers that gain references, and how many. They are to be added before any is dropped.
    pub fn additions(&self) -> impl Iterator<Item = (Referrer, u64)> {
        self.with_sign(1)
    }

    /// Referrers that lose references, and how many.
    pub fn drops(&self) -> impl Iterator<Item = (Referrer, u64)> {
        self.with_sign(-1)
    }

    fn with_sign(&self, sign: i64) -> impl Iterator<Item = (Referrer, u64)> {
        let of_sign = move |(_, count): &(&Referrer, &i64)| count.signum() == sign;
        self.changes
            .iter()
            .filter(of_sign)
            .map(|(referrer, count)| (*referrer, count.unsigned_abs()))
    }
}
