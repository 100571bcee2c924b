//! What becomes of a bad tree block or sector.

use larder_format::Logical;
use larder_volume::{CopyProblem, DeviceErrors};

use crate::counters::Counters;
use crate::finding::{Fate, Finding, Subject};
use crate::verifier::{Lost, Verifier};
use crate::wanted::{Proof, Wanted};

/// A bad tree block or sector of data.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) wanted: Wanted,
    pub(crate) problem: CopyProblem,
    /// How many of its sectors the device cannot read.
    pub(crate) unread_sectors: u64,
}

impl Verifier<'_> {
    /// Decides what becomes of it, does that, and counts it.
    pub(crate) fn settle(&self, bad: Bad, tally: &mut Counters) -> Result<Finding, Lost> {
        let Bad { wanted, problem, unread_sectors } = bad;
        let fate = self.fate_of(&wanted)?;
        let sectors = wanted.len_bytes / self.sectorsize();
        let mut errors = DeviceErrors::default();
        if unread_sectors > 0 {
            tally.read_errors += unread_sectors;
            errors.reads = unread_sectors;
        } else if matches!(wanted.proof, Proof::Block { .. }) {
            tally.verify_errors += sectors;
            errors.generations = u64::from(matches!(problem, CopyProblem::Generation { .. }));
        } else {
            tally.csum_errors += sectors;
            errors.corruptions = sectors;
        }
        self.scrub.count_errors(errors);
        match fate {
            Fate::Repaired | Fate::Repairable | Fate::LeftWithParity => {
                tally.corrected_errors += sectors;
            }
            Fate::NotWritten | Fate::BeyondRepair => tally.uncorrectable_errors += sectors,
            Fate::Freed | Fate::Undecided => tally.unverified_errors += sectors,
        }
        let (logical, nodesize) = (Logical(wanted.logical), self.volume().nodesize());
        let subject = match wanted.proof {
            Proof::Block { .. } => {
                Subject::TreeBlock { tree: self.state.tree_of(logical, nodesize) }
            }
            _ => Subject::Data,
        };
        Ok(Finding {
            device: self.scrub.device,
            physical: wanted.physical,
            logical: Some(wanted.logical),
            len_bytes: wanted.len_bytes,
            subject,
            problem: problem.to_string(),
            fate,
        })
    }

    fn fate_of(&self, wanted: &Wanted) -> Result<Fate, Lost> {
        let may_write = self.scrub.target.manager().is_some() && !self.scrub.is_read_only;
        if self.part.chunk.has_parity() {
            let is_there = self.good_copy(wanted).is_some();
            return Ok(if is_there { Fate::LeftWithParity } else { self.beyond_repair(wanted) });
        }
        if !may_write {
            let is_there = self.good_copy(wanted).is_some();
            return Ok(if is_there { Fate::Repairable } else { self.beyond_repair(wanted) });
        }
        let good = match wanted.proof {
            // Nobody can change what has a proof, so that it can be read before writers wait.
            Proof::Block { .. } | Proof::Sum(_) => match self.good_copy(wanted) {
                Some(good) => Some(good),
                None => return Ok(self.beyond_repair(wanted)),
            },
            Proof::Nothing => None,
        };
        let (volume, device) = (self.volume(), self.scrub.device);
        let written = volume.without_writes(|| {
            self.check_kept(wanted.physical)?;
            let Some(good) = good.or_else(|| self.good_copy(wanted)) else { return Ok(None) };
            let written = volume.write_member(device, wanted.at_device(), &good);
            Ok(Some(matches!(written, Ok(true))))
        })?;
        Ok(match written {
            Some(true) => Fate::Repaired,
            Some(false) => Fate::NotWritten,
            None => self.beyond_repair(wanted),
        })
    }

    /// The content of another copy that is proved right or, if nothing proves it, comes from a
    /// device that missed nothing.
    fn good_copy(&self, wanted: &Wanted) -> Option<Vec<u8>> {
        let (volume, logical) = (self.volume(), Logical(wanted.logical));
        let chunk = &self.part.chunk;
        let segment = chunk.segment(logical, wanted.len_bytes);
        let mirrors: Vec<u64> = chunk.addresses(&segment).map(|at| at.devid).collect();
        let is_stale = |copy: usize| {
            let device = mirrors.get(copy).and_then(|id| self.state.geometry.device(*id));
            device.is_some_and(|member| member.is_stale())
        };
        let mut bytes = vec![0; wanted.len_bytes as usize];
        let is_good = (0..chunk.copies()).filter(|copy| *copy != self.part.copy()).any(|copy| {
            let may_be = !matches!(wanted.proof, Proof::Nothing) || !is_stale(copy);
            may_be
                && volume.read_copy(logical, copy, &mut bytes).is_ok()
                && wanted.prove(&bytes, volume).is_ok()
        });
        is_good.then_some(bytes)
    }

    /// There is no good copy, unless nothing needs one any more.
    fn beyond_repair(&self, wanted: &Wanted) -> Fate {
        if self.scrub.target.manager().is_none() {
            return Fate::BeyondRepair;
        }
        let (logical, nodesize) = (Logical(wanted.logical), self.volume().nodesize());
        let before = self.state.extent_at(logical, nodesize);
        let now = self.scrub.target.state().and_then(|now| now.extent_at(logical, nodesize));
        match (before, now) {
            (Ok(Some(before)), Ok(now)) => {
                let is_same = now.is_some_and(|now| {
                    (now.range, now.generation) == (before.range, before.generation)
                });
                if is_same { Fate::BeyondRepair } else { Fate::Freed }
            }
            _ => Fate::BeyondRepair,
        }
    }
}
