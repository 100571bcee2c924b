//! The sink for findings while a check runs: any thread adds to it, and its memory is bounded.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::evidence::Evidence;

use super::{Finding, Kind, KindFindings, Location};

/// Findings so far. All of each kind are counted, and the first few are kept.
#[derive(Debug)]
pub(crate) struct Sink {
    kept_per_kind: usize,
    kinds: Mutex<BTreeMap<Kind, Kept>>,
    skipped: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    findings: Vec<Finding>,
}

impl Sink {
    pub(crate) fn new(kept_per_kind: usize) -> Self {
        Self { kept_per_kind, kinds: Mutex::default(), skipped: Mutex::default() }
    }

    /// Adds a finding.
    pub(crate) fn add(&self, location: Location, evidence: Evidence) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kinds.entry(evidence.kind()).or_default();
        kept.count += 1;
        if kept.findings.len() < self.kept_per_kind {
            kept.findings.push(Finding::new(location, evidence));
        }
    }

    /// Records that a part was skipped, and why.
    pub(crate) fn skip(&self, what: String) {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Takes all kinds that were found, each with its findings in order of location, and the skipped
    /// parts.
    pub(crate) fn finish(&self) -> (Vec<KindFindings>, Vec<String>) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let group = |(kind, mut kept): (Kind, Kept)| {
            kept.findings.sort_by_cached_key(|finding| (finding.location, finding.message()));
            KindFindings {
                kind,
                severity: kind.severity(),
                repair: kind.repair(),
                count: kept.count,
                findings: kept.findings,
            }
        };
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = std::mem::take(&mut *kinds).into_iter().map(group).collect();
        (kinds, std::mem::take(&mut *skipped))
    }
}
