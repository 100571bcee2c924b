//! What a check found.

mod kind;
mod place;
mod sink;

use std::fmt;

use serde::Serialize;

pub use kind::{Kind, Repair, Severity};
pub use place::Place;
pub(crate) use sink::Sink;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where.
    #[serde(rename = "where")]
    pub place: Place,
    /// What is there, and what should be.
    pub message: String,
}

/// Everything found of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindFindings {
    /// The kind.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// What would mend it.
    pub repair: Repair,
    /// How often it was found.
    pub count: u64,
    /// Some of them, in order of place: at most as many as the options allow for one kind.
    pub findings: Vec<Finding>,
}

/// How much was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Trees, log trees included.
    pub trees: u64,
    /// Tree blocks, each counted once however many trees share it.
    pub tree_blocks: u64,
    /// Bytes of these, one copy.
    pub tree_block_bytes: u64,
    /// Extents of data.
    pub data_extents: u64,
    /// Bytes of these, one copy.
    pub data_bytes: u64,
    /// Bytes of data that have checksums.
    pub checksummed_bytes: u64,
    /// Bytes of data read and compared with their checksums, all copies together.
    pub verified_bytes: u64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Id of the file system.
    pub fsid: String,
    /// What was found, worst and most basic first.
    pub kinds: Vec<KindFindings>,
    /// What was not checked, and why. Nothing is wrong with it as far as is known.
    pub skipped: Vec<String>,
    /// How much was looked at.
    pub statistics: Statistics,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.kinds.is_empty()
    }

    /// How many findings there are, also those that were not kept.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// How many findings of `kind` there are.
    pub fn count_of(&self, kind: Kind) -> u64 {
        self.kinds.iter().find(|found| found.kind == kind).map_or(0, |found| found.count)
    }

    /// Exit code of a command that ran this check: 0 when clean, 1 when not. (2 is for a file system
    /// that could not be opened.)
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.is_clean())
    }
}

impl fmt::Display for Report {
    /// A line for each finding, then a summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.kinds {
            let KindFindings { kind, severity, repair, count, findings } = group;
            for Finding { place, message } in findings {
                writeln!(f, "{severity}: {kind}: {place}: {message}")?;
            }
            let left_out = count - findings.len() as u64;
            if left_out > 0 {
                writeln!(f, "{severity}: {kind}: and {left_out} more")?;
            }
            writeln!(f, "  {} Repair: {repair}.", kind.title())?;
        }
        let Statistics { trees, tree_blocks, tree_block_bytes, data_extents, data_bytes, .. } =
            self.statistics;
        writeln!(f, "file system {}", self.fsid)?;
        writeln!(f, "{trees} trees, {tree_blocks} tree blocks ({tree_block_bytes} bytes)")?;
        writeln!(f, "{data_extents} data extents ({data_bytes} bytes)")?;
        if self.statistics.verified_bytes > 0 {
            writeln!(f, "{} bytes of data verified", self.statistics.verified_bytes)?;
        }
        for skipped in &self.skipped {
            writeln!(f, "not checked: {skipped}")?;
        }
        match self.count() {
            0 => writeln!(f, "no findings"),
            1 => writeln!(f, "1 finding"),
            count => writeln!(f, "{count} findings"),
        }
    }
}
