//! How far a check has come.

use std::fmt;

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Reading superblocks and the inner blocks of every tree.
    Trees,
    /// Reading the extent tree and other trees that hold no files.
    Space,
    /// Reading the leaves of every subvolume.
    Files,
    /// Relating what was read.
    Relations,
    /// Reading data and comparing it with its checksums.
    Data,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trees => "reading trees",
            Self::Space => "checking space",
            Self::Files => "checking files",
            Self::Relations => "checking relations",
            Self::Data => "checking data",
        })
    }
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes done in this phase.
    pub done_bytes: u64,
    /// Bytes to do in this phase, 0 when that is not known.
    pub total_bytes: u64,
}
