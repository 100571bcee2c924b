//! Alternative implementations, for measuring against the default ones.

/// Which implementations to use, for measuring one against the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How index items and inode items reach the trees.
    pub queue: Queue,
    /// What queued index items reserve space for.
    pub reserve: Reserve,
    /// Where readers find the extents of a file.
    pub extents: FindExtents,
}

/// Where readers find the extents of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindExtents {
    /// In memory, after the first search.
    #[default]
    InMemory,
    /// In the trees, each time.
    InTrees,
}

/// How index items and inode items reach the trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// They are delayed, and go into the trees many at a time.
    #[default]
    Delayed,
    /// They go into the trees one by one.
    Direct,
}

/// What queued insertions reserve space for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// For each leaf that they will touch.
    #[default]
    PerLeaf,
    /// For each item.
    PerItem,
}
