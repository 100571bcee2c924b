//! Repair: planned, carried out beside the devices, proved, and only then written.
//!
//! 1. [`prepare`] opens the devices through overlays, which take all changes. The checker says what
//!    is wrong.
//! 2. `plan`: what is done about each kind of finding. `draft`: what that changes, from the typed
//!    evidence of the findings. Each structure is made again from what refers to it.
//! 3. `commit`: the draft is carried out in one commit, in free space, with the books of space
//!    written anew. The checker looks again; what it finds now is answered in the same way, a few
//!    times.
//! 4. The proof: no finding is left, and what was readable is readable and the same.
//! 5. [`Prepared::apply`] writes the changes to the devices, after an undo file.
//!
//! # Invariants
//! - Until [`Prepared::apply`] no byte of a device changes.
//! - A repair that is not proved cannot be applied.
//! - The checker shares no code with what it judges here.

mod block;
mod books;
mod checksums;
mod commit;
mod copies;
mod draft;
mod error;
mod files;
mod plan;
mod readable;
mod references;
mod space;
mod update;
mod wishes;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_check::{KindFindings, Options, Progress, Report, Stopped, check};
use larder_device::{Device, Overlay};
use larder_format::superblock::OFFSETS;
use larder_volume::{OpenError, OpenOptions, Volume, WriteError, scan};
use zerocopy::IntoBytes;

use crate::undo::{UndoError, apply};
pub use error::RepairError;
pub use plan::{Action, Step};
use readable::{Readable, changed_checksum};
pub use wishes::Wishes;

/// Bytes of changes that each device's overlay keeps in memory.
const OVERLAY_BYTES: usize = 64 << 20;
/// How often findings are answered.
const MOST_ROUNDS: usize = 5;
/// Findings of one kind that are answered at once.
const KEPT_PER_KIND: usize = 10_000;

/// Whether a repair is good.
#[derive(Debug)]
pub enum Verdict {
    /// There is nothing to repair.
    Sound,
    /// It is proved: it can be applied.
    Proved,
    /// It is not: the reasons, a sentence for each.
    Refused(Vec<String>),
}

/// A repair that was carried out beside the devices.
#[derive(Debug)]
pub struct Prepared {
    /// What is done about the findings, the worst first.
    pub steps: Vec<Step>,
    /// What the repair changed that no finding names, and what is lost: sentences.
    pub notes: Vec<String>,
    /// What the checker found before.
    pub before: Report,
    /// What it finds after.
    pub after: Report,
    /// Whether it is good.
    pub verdict: Verdict,
    overlays: Vec<Arc<Overlay>>,
}

/// Observes the checks.
pub type Tell<'a> = &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync);

/// Plans a repair of the file system on `devices` and carries it out beside them.
///
/// # Errors
/// If it cannot be opened or checked, or `tell` stopped it. A repair that is not good is no error:
/// the verdict says so.
pub fn prepare(
    devices: Vec<Arc<dyn Device>>,
    wishes: &Wishes,
    tell: Tell<'_>,
) -> Result<Prepared, RepairError> {
    let overlay = |device| Arc::new(Overlay::new(device, OVERLAY_BYTES));
    let overlays: Vec<Arc<Overlay>> = devices.into_iter().map(overlay).collect();
    let look = |volume: &Volume| {
        let options = Options {
            check_data_csum: wishes.check_data_csum,
            kept_per_kind: KEPT_PER_KIND,
            progress: Some(tell),
            ..Options::default()
        };
        check(volume, &options)
    };
    let volume = open(&overlays, false)?;
    let before = look(&volume)?;
    if !before.kinds.iter().any(|it| wishes.chooses(it.kind)) && !wishes.is_any() {
        let (steps, notes) = (Vec::new(), Vec::new());
        let (after, verdict) = (before.clone(), Verdict::Sound);
        return Ok(Prepared { steps, notes, before, after, verdict, overlays });
    }
    let readable = Readable::of(&volume);
    drop(volume);
    let mut repair = Repair {
        overlays: &overlays,
        notes: Vec::new(),
        fresh_checksums: BTreeSet::new(),
        after: before.clone(),
    };
    let carried_out = repair.run(wishes, &look);
    let Repair { notes, fresh_checksums, after, .. } = repair;
    let mut reasons: Vec<String> = Vec::new();
    match carried_out {
        Err(error @ RepairError::Stopped(_)) => return Err(error),
        Err(error) => reasons.push(error.to_string()),
        Ok(()) => {
            let is_bad = |it: &&KindFindings| !wishes.allows(it.kind, it.count, &before);
            let left = |it: &KindFindings| match it.count {
                1 => format!("1 finding would remain: {}", it.kind),
                count => format!("{count} findings would remain: {}", it.kind),
            };
            reasons.extend(after.kinds.iter().filter(is_bad).map(left));
            if !wishes.is_any() && after.count() == before.count() && reasons.is_empty() {
                reasons.push("no finding would go".into());
            }
            let repaired = open(&overlays, false)?;
            let now = Readable::of(&repaired);
            reasons.extend(readable.missing_in(&now));
            if readable.has_other_checksums(&now) {
                let is_fresh = |sector: u64| fresh_checksums.contains(&sector);
                let changed = changed_checksum(&open_below(&overlays)?, &repaired, is_fresh);
                let say = |sector| format!("the checksum of the data at {sector} is another");
                reasons.extend(changed.map(say));
            }
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Proved } else { Verdict::Refused(reasons) };
    Ok(Prepared {
        steps: plan::steps(&before, |kind| wishes.action(kind)),
        notes,
        before,
        after,
        verdict,
        overlays,
    })
}

fn open(overlays: &[Arc<Overlay>], write: bool) -> Result<Volume, OpenError> {
    let devices = overlays.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect();
    let options = OpenOptions { write, any_state: !write, ..OpenOptions::default() };
    Volume::open(devices, &options)
}

/// The file system as it is without the repair.
fn open_below(overlays: &[Arc<Overlay>]) -> Result<Volume, OpenError> {
    let devices = overlays.iter().map(|it| Arc::clone(it.below())).collect();
    Volume::open(devices, &OpenOptions { any_state: true, ..OpenOptions::default() })
}

struct Repair<'a> {
    overlays: &'a [Arc<Overlay>],
    notes: Vec<String>,
    fresh_checksums: BTreeSet<u64>,
    after: Report,
}

impl Repair<'_> {
    fn run(
        &mut self,
        wishes: &Wishes,
        look: &dyn Fn(&Volume) -> Result<Report, Stopped>,
    ) -> Result<(), RepairError> {
        recover_superblocks(self.overlays)?;
        let mut wishes = *wishes;
        for round in 0..MOST_ROUNDS {
            let volume = open(self.overlays, true)?;
            let mut draft = draft::draft(&volume, &self.after, &wishes, round == 0);
            commit::commit(&volume, &mut draft)?;
            self.fresh_checksums.append(&mut draft.fresh_checksums);
            for note in draft.notes {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            drop(volume);
            let Wishes { only, fix_data_checksum, .. } = wishes;
            wishes = Wishes { fix_data_checksum, only, ..Wishes::default() };
            let before = self.after.count();
            self.after = look(&open(self.overlays, false)?)?;
            let is_done = !self.after.kinds.iter().any(|it| wishes.answers(it.kind));
            if is_done || (round > 0 && self.after.count() == before) {
                break;
            }
        }
        Ok(())
    }
}

/// Writes the superblock that counts over every copy that differs from it, on each device.
fn recover_superblocks(overlays: &[Arc<Overlay>]) -> Result<(), RepairError> {
    for overlay in overlays {
        let newest = scan(overlay.as_ref())?.superblock;
        for offset in OFFSETS {
            let len_bytes = overlay.len_bytes().min(newest.dev_item.total_bytes.get());
            if offset.0 + (newest.as_bytes().len() as u64) < len_bytes {
                let mut copy = newest.clone();
                copy.bytenr = offset.0.into();
                copy.flags =
                    (copy.flags.get() & !larder_format::superblock::SUPER_FLAG_ERROR).into();
                copy.update_checksum();
                overlay.write_at(copy.as_bytes(), offset.0).map_err(WriteError::from)?;
            }
        }
    }
    Ok(())
}

impl Prepared {
    /// Bytes that applying it writes to devices.
    ///
    /// # Errors
    /// If a device cannot be read.
    pub fn changed_bytes(&self) -> Result<u64, UndoError> {
        let mut bytes = 0;
        for overlay in &self.overlays {
            let changed = overlay.changed_offsets()?;
            bytes += changed.iter().map(|at| overlay.block_len_at(*at) as u64).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Writes the repair to the devices, whose paths are `names`, after saving what is there in the
    /// new file `undo`. Returns the bytes that were overwritten.
    ///
    /// # Errors
    /// As those of [`apply`].
    ///
    /// # Panics
    /// If the verdict is not [`Verdict::Proved`].
    pub fn apply(&self, names: &[PathBuf], undo: &Path) -> Result<u64, UndoError> {
        assert!(matches!(self.verdict, Verdict::Proved), "only what is proved is written");
        apply(&self.overlays, names, undo)
    }
}
