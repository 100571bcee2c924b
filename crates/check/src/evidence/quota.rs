//! Evidence of quotas.

use larder_format::item::QGROUP_LEVEL_SHIFT;
use larder_format::{FormatError, ItemType};

evidence! {
    /// What is wrong with quotas.
    QuotaEvidence {
        QuotaItem => Format { problem: FormatError } "{problem}";
        QuotaItem => Version { found: u64 } "version {found}";
        QuotaItem => Unexpected { found: ItemType } "{found} in the quota tree";
        QuotaItem => NoStatus "there is no status item";
        QuotaItem => NoLimits { group: QuotaGroupId } "group {group} has no limits";
        QuotaItem => NoCounts { group: QuotaGroupId } "group {group} has limits and no counts";
        QuotaItem => MemberOfNone { member: QuotaGroupId, group: QuotaGroupId, missing: QuotaGroupId }
            "{member} is in {group}, but {missing} is none";
        QuotaItem => RelationNotBack { from: QuotaGroupId, to: QuotaGroupId }
            "{from} relates to {to}, not back";
        QuotaItem => OneLevel { from: QuotaGroupId, to: QuotaGroupId }
            "{from} and {to} are of one level";
        QuotaCount => Counts {
            group: QuotaGroupId, found_bytes: u64, found_exclusive: u64,
            expected_bytes: u64, expected_exclusive: u64
        } "group {group} says {found_bytes} bytes, {found_exclusive} exclusive; it has \
           {expected_bytes}, {expected_exclusive}";
    }
}

/// The id of a quota group. Its text is the usual form: level and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaGroupId(pub u64);

impl std::fmt::Display for QuotaGroupId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.0 & ((1 << QGROUP_LEVEL_SHIFT) - 1);
        write!(f, "{}/{number}", self.0 >> QGROUP_LEVEL_SHIFT)
    }
}
