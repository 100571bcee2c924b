//! The findings of a check.

mod affected;
mod kind;
mod location;
mod sink;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::evidence::Evidence;

pub use affected::{AffectedFile, DeviceOffset};
pub use kind::{Kind, Repair, Severity};
pub use location::Location;
pub(crate) use sink::Sink;

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The location.
    #[serde(rename = "where")]
    pub location: Location,
    /// The state found, and the expected one. Its text is the message.
    #[serde(rename = "message", serialize_with = "serialize_text")]
    pub evidence: Evidence,
    /// Affected files, as far as they are known; some of them if they are many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<AffectedFile>,
    /// The places on devices of all copies, if it is about certain bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceOffset>,
}

impl Finding {
    pub(crate) fn new(location: Location, evidence: Evidence) -> Self {
        Self { location, evidence, files: Vec::new(), devices: Vec::new() }
    }

    /// The state found, and the expected one, in words.
    pub fn message(&self) -> String {
        self.evidence.to_string()
    }
}

fn serialize_text<S: Serializer>(evidence: &Evidence, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(evidence)
}

/// All findings of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindFindings {
    /// The kind.
    pub kind: Kind,
    /// The severity.
    pub severity: Severity,
    /// The possible repair.
    pub repair: Repair,
    /// The number of findings.
    pub count: u64,
    /// Some findings, in order of location: at most as many as the options allow for one kind.
    pub findings: Vec<Finding>,
}

/// How much was checked.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Id of the file system.
    pub fsid: String,
    /// Findings by kind, worst and most basic first.
    pub kinds: Vec<KindFindings>,
    /// Skipped parts, and why. They may be sound.
    pub skipped: Vec<String>,
    /// How much was checked.
    pub statistics: Statistics,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The number of findings, including those that were not kept.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// The number of findings of `kind`.
    pub fn count_of(&self, kind: Kind) -> u64 {
        self.kinds.iter().find(|found| found.kind == kind).map_or(0, |found| found.count)
    }

    /// Exit code of a command that ran this check: 0 when clean, 1 when not. (2 is for a file
    /// system that could not be opened.)
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.is_clean())
    }
}

impl fmt::Display for Report {
    /// A line for each finding, then a summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.kinds {
            let KindFindings { kind, severity, repair, count, findings } = group;
            for Finding { location, evidence, files, devices } in findings {
                writeln!(f, "{severity}: {kind}: {location}: {evidence}")?;
                files.iter().try_for_each(|file| writeln!(f, "    {file}"))?;
                devices.iter().try_for_each(|device| writeln!(f, "    {device}"))?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use larder_format::{ItemType, Key};

    use super::*;
    use crate::evidence::{InodeEvidence, SuperblockEvidence};

    fn report() -> Report {
        let sink = Sink::new(2);
        for number in (0..5).rev() {
            let key = Key::new(257 + number, ItemType::INODE_ITEM, 0);
            let location = Location::tree(5).at(4096).key(key);
            let evidence = InodeEvidence::Links { found: number as u32, expected: 1 };
            sink.add(location, evidence.into());
        }
        let evidence = SuperblockEvidence::Unreadable { problem: "bad".into() };
        sink.add(Location::device(1).at_physical(65536), evidence.into());
        let (kinds, skipped) = sink.finish();
        Report { fsid: "id".into(), kinds, skipped, statistics: Statistics::default() }
    }

    #[test]
    fn findings_are_counted_and_the_first_are_kept() {
        let report = report();
        assert_eq!((report.count(), report.count_of(Kind::LinkCount)), (6, 5));
        assert_eq!(report.exit_code(), 1);
        let messages: Vec<String> = report.kinds[1].findings.iter().map(Finding::message).collect();
        assert_eq!(messages, ["it counts 3 links, has 1", "it counts 4 links, has 1"]);
        let expected = InodeEvidence::Links { found: 3, expected: 1 };
        assert_eq!(report.kinds[1].findings[0].evidence, Evidence::Inode(expected));
    }

    #[test]
    fn text_has_place_severity_and_repair() {
        let text = report().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error: superblock-bad: device 1, offset 65536: bad");
        assert!(lines[1].ends_with("Repair: from a good copy."), "{text}");
        let location = "tree 5, logical 4096, key (260 INODE_ITEM 0)";
        assert_eq!(lines[2], format!("error: link-count: {location}: it counts 3 links, has 1"));
        assert_eq!(lines[4], "error: link-count: and 3 more");
    }

    #[test]
    fn json_has_stable_names() {
        let json = serde_json::to_value(report()).expect("serializes");
        let group = &json["kinds"][1];
        assert_eq!((&group["kind"], &group["severity"]), (&"link-count".into(), &"error".into()));
        assert_eq!((&group["repair"], &group["count"]), (&"recompute".into(), &5.into()));
        assert_eq!(group["findings"][0]["where"]["key"], "(260 INODE_ITEM 0)");
        assert_eq!(json["kinds"][0]["findings"][0]["where"]["device"], 1);
    }

    #[test]
    fn names_of_kinds_are_unique() {
        let ids: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.id()).collect();
        assert_eq!(ids.len(), Kind::ALL.len());
    }
}
