//! Other ways to do things, to be measured against those that are used.

/// How things are done, for measuring one way against the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// What becomes of index items and inode items.
    pub queue: Queue,
    /// What queued index items keep.
    pub reserve: Reserve,
    /// Where readers find the extents of a file.
    pub extents: FindExtents,
}

/// Where readers find the extents of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindExtents {
    /// In memory, once they were searched for.
    #[default]
    InMemory,
    /// In the trees, each time.
    InTrees,
}

/// What becomes of index items and inode items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// They wait, and go into the trees many at a time.
    #[default]
    Delayed,
    /// They go into the trees one by one.
    Direct,
}

/// For what queued insertions keep room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// For each leaf that they will touch.
    #[default]
    PerLeaf,
    /// For each item.
    PerItem,
}
