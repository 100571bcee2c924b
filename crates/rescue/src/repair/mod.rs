//! Repair: planned, carried out beside the devices, proved, and only then written.
//!
//! 1. [`prepare`] has the checker say what is wrong. From then on the devices are opened through
//!    overlays, which take all changes.
//! 2. `ground`: if chunks or tree blocks are lost, what salvage puts together is written first.
//! 3. `plan`: what is done about each kind of finding. `draft`: what that changes, from the typed
//!    evidence of the findings. Each structure is made again from what refers to it.
//! 4. `commit`: the draft is carried out in one commit, in free space, with the books of space
//!    written anew. The checker looks again; what it finds now is answered in the same way, a few
//!    times.
//! 5. The proof: no finding is left, and what was readable is readable and the same.
//! 6. [`Prepared::apply`] writes the changes to the devices, after an undo file.
//!
//! # Invariants
//! - Until [`Prepared::apply`] no byte of a device changes.
//! - A repair that is not proved cannot be applied.
//! - The checker shares no code with what it judges here.

mod bits;
mod block;
mod books;
mod checksums;
mod commit;
mod copies;
mod draft;
mod error;
mod extents;
mod files;
mod ground;
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

use larder_check::{KindFindings, Options, Phase, Progress, Report, Stopped, check};
use larder_device::{Device, Overlay};
use larder_format::superblock::{OFFSETS, SUPER_FLAG_ERROR};
use larder_format::{Key, Superblock};
use larder_volume::{OpenError, OpenOptions, Volume, WriteError, scan};
use zerocopy::IntoBytes;

use crate::progress::Tracker;
use crate::salvage::{Salvaged, salvage_for_writing};
use crate::superblocks::made_again;
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
/// If it cannot be opened, salvaged or checked, or `tell` stopped it. A repair that is not good is
/// no error: the verdict says so.
pub fn prepare(
    devices: Vec<Arc<dyn Device>>,
    wishes: &Wishes,
    tell: Tell<'_>,
) -> Result<Prepared, RepairError> {
    let volume = open_below(&devices);
    let before = match &volume {
        Ok(volume) => look(volume, wishes, tell)?,
        Err(_) => Report::default(),
    };
    let is_chosen = volume.is_err() || before.kinds.iter().any(|it| wishes.chooses(it.kind));
    if !is_chosen && !wishes.is_any() {
        let (after, verdict) = (before.clone(), Verdict::Sound);
        let (steps, notes, overlays) = Default::default();
        return Ok(Prepared { steps, notes, before, after, verdict, overlays });
    }
    let subject = Subject { devices, wishes, tell, before, readable: Readable::default() };
    match volume {
        Ok(volume) => subject.repair(&volume),
        Err(error) => subject.repair_unopened(error),
    }
}

/// Checks a volume as the caller of a repair wishes.
fn look(volume: &Volume, wishes: &Wishes, tell: Tell<'_>) -> Result<Report, Stopped> {
    let options = Options {
        check_data_csum: wishes.check_data_csum,
        kept_per_kind: KEPT_PER_KIND,
        progress: Some(tell),
        ..Options::default()
    };
    check(volume, &options)
}

/// A file system that is to be repaired, and what is known of it before.
struct Subject<'a> {
    devices: Vec<Arc<dyn Device>>,
    wishes: &'a Wishes,
    tell: Tell<'a>,
    before: Report,
    readable: Readable,
}

impl Subject<'_> {
    /// Repairs what can be opened. Where blocks are lost, what salvage puts together comes first; if
    /// no good repair begins with that, what is left without it.
    fn repair(mut self, volume: &Volume) -> Result<Prepared, RepairError> {
        self.readable = Readable::of(volume);
        let lacks_blocks = || commit::lacks_blocks(volume);
        let may_salvage = self.wishes.chooses_blocks() && plan::may_lack_blocks(&self.before);
        if may_salvage && lacks_blocks() {
            let salvaged = self.carry_out(true)?;
            if matches!(salvaged.verdict, Verdict::Proved) {
                return Ok(salvaged);
            }
            let without = self.carry_out(false)?;
            let is_better = matches!(without.verdict, Verdict::Proved);
            return Ok(if is_better { without } else { salvaged });
        }
        self.carry_out(false)
    }

    /// Repairs what cannot be opened, for this reason.
    fn repair_unopened(self, error: OpenError) -> Result<Prepared, RepairError> {
        let is_chosen = match error {
            OpenError::Scan(_) => self.wishes.chooses_superblocks(),
            _ => self.wishes.chooses_blocks(),
        };
        if !is_chosen || !is_salvaged_after(&error) {
            return Err(error.into());
        }
        // It can be judged only as a whole.
        let wishes = Wishes { only: &[], ..*self.wishes };
        let mut prepared = Subject { wishes: &wishes, ..self }.carry_out(true)?;
        prepared.notes.insert(0, format!("{error}"));
        Ok(prepared)
    }

    /// Carries a repair out on overlays, and judges it.
    fn carry_out(&self, begins_with_salvage: bool) -> Result<Prepared, RepairError> {
        let overlay =
            |device: &Arc<dyn Device>| Arc::new(Overlay::new(device.clone(), OVERLAY_BYTES));
        let overlays: Vec<Arc<Overlay>> = self.devices.iter().map(overlay).collect();
        let mut repair = Repair {
            overlays: &overlays,
            wishes: self.wishes,
            tell: self.tell,
            notes: Vec::new(),
            fresh_checksums: BTreeSet::new(),
            set_right: BTreeSet::new(),
            after: self.before.clone(),
            ground: None,
        };
        let reasons = match repair.run(begins_with_salvage) {
            Err(error @ RepairError::Stopped(_)) => return Err(error),
            Err(error) => vec![error.to_string()],
            Ok(()) => self.objections(&mut repair)?,
        };
        let verdict = if reasons.is_empty() { Verdict::Proved } else { Verdict::Refused(reasons) };
        let Repair { notes, after, .. } = repair;
        let steps = plan::steps(&self.before, |kind| self.wishes.action(kind));
        let before = self.before.clone();
        Ok(Prepared { steps, notes, before, after, verdict, overlays })
    }

    /// Why what was carried out must not be written.
    fn objections(&self, repair: &mut Repair<'_>) -> Result<Vec<String>, RepairError> {
        let after = &repair.after;
        let is_bad = |it: &&KindFindings| !self.wishes.allows(it.kind, it.count, &self.before);
        let left = |it: &KindFindings| match it.count {
            1 => format!("1 finding would remain: {}", it.kind),
            count => format!("{count} findings would remain: {}", it.kind),
        };
        let mut reasons: Vec<String> = after.kinds.iter().filter(is_bad).map(left).collect();
        let had_findings = !self.before.is_clean();
        let helps_nothing = after.count() == self.before.count() && had_findings;
        if helps_nothing && !self.wishes.is_any() && reasons.is_empty() {
            reasons.push("no finding would go".into());
        }
        let repaired = open(repair.overlays, false)?;
        let now = Readable::of(&repaired);
        reasons.extend(self.readable.missing_in(&now, &repair.set_right));
        let fresh = &repair.fresh_checksums;
        let is_fresh = |sector: u64| fresh.contains(&sector);
        let say = |sector| format!("the checksum of the data at {sector} is another");
        match repair.ground.take() {
            Some(Ground { readable, salvaged }) => {
                reasons.extend(readable.missing_in(&now, &repair.set_right));
                let before = salvaged.map(Salvaged::rewound);
                let changed = before.and_then(|it| changed_checksum(&it, &repaired, is_fresh));
                reasons.extend(changed.map(say));
            }
            None if self.readable.has_other_checksums(&now) => {
                let before = open_below(&self.devices)?;
                reasons.extend(changed_checksum(&before, &repaired, is_fresh).map(say));
            }
            None => {}
        }
        reasons.dedup();
        Ok(reasons)
    }
}

fn open(overlays: &[Arc<Overlay>], write: bool) -> Result<Volume, OpenError> {
    let devices = overlays.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect();
    let options =
        OpenOptions { write, any_state: !write, short_devices: write, ..OpenOptions::default() };
    Volume::open(devices, &options)
}

/// The file system as it is without the repair.
fn open_below(devices: &[Arc<dyn Device>]) -> Result<Volume, OpenError> {
    Volume::open(devices.to_vec(), &OpenOptions { any_state: true, ..OpenOptions::default() })
}

/// Whether salvage may find what is missing.
fn is_salvaged_after(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Scan(_)
            | OpenError::SystemChunks(_)
            | OpenError::Chunk(_)
            | OpenError::ChunkTree(_)
            | OpenError::ChunkTreeItem { .. }
    )
}

/// What the devices themselves do not show, and a repair begins with.
struct Ground {
    readable: Readable,
    /// What was put together, unless superblocks were all that was lost.
    salvaged: Option<Salvaged>,
}

struct Repair<'a> {
    overlays: &'a [Arc<Overlay>],
    wishes: &'a Wishes,
    tell: Tell<'a>,
    notes: Vec<String>,
    fresh_checksums: BTreeSet<u64>,
    set_right: BTreeSet<(u64, Key)>,
    after: Report,
    ground: Option<Ground>,
}

impl Repair<'_> {
    fn run(&mut self, begins_with_salvage: bool) -> Result<(), RepairError> {
        if begins_with_salvage {
            self.make_superblocks()?;
        }
        recover_superblocks(self.overlays)?;
        if begins_with_salvage {
            self.lay_ground()?;
            if self.after.is_clean() && !self.wishes.is_any() {
                return Ok(());
            }
        }
        let mut wishes = *self.wishes;
        for round in 0..MOST_ROUNDS {
            let volume = open(self.overlays, true)?;
            let mut draft = draft::draft(&volume, &self.after, &wishes, round == 0);
            commit::commit(&volume, &mut draft)?;
            self.fresh_checksums.append(&mut draft.fresh_checksums);
            self.set_right.append(&mut draft.set_right);
            self.note(draft.notes);
            drop(volume);
            let Wishes { only, fix_data_checksum, .. } = wishes;
            wishes = Wishes { fix_data_checksum, only, ..Wishes::default() };
            let before = self.after.count();
            self.after = look(&open(self.overlays, false)?, self.wishes, self.tell)?;
            let is_done = !self.after.kinds.iter().any(|it| wishes.answers(it.kind));
            if is_done || (round > 0 && self.after.count() == before) {
                break;
            }
        }
        Ok(())
    }

    /// Writes what salvage puts together, and checks that.
    fn lay_ground(&mut self) -> Result<(), RepairError> {
        let salvaged = salvage_for_writing(&self.devices(), &|now| self.tell_search(now))?;
        let readable = match &salvaged {
            Some(salvaged) => {
                let readable = Readable::of(&salvaged.volume);
                let (notes, mut dropped) = ground::lay(salvaged)?;
                self.note(notes);
                self.set_right.append(&mut dropped);
                readable
            }
            None => Readable::of(&open(self.overlays, false)?),
        };
        self.ground = Some(Ground { readable, salvaged });
        self.after = look(&open(self.overlays, false)?, self.wishes, self.tell)?;
        Ok(())
    }

    /// Makes superblocks for devices that have none.
    fn make_superblocks(&mut self) -> Result<(), RepairError> {
        let tell = |now| self.tell_search(now);
        for (index, superblock) in made_again(&self.devices(), &Tracker::new(&tell))? {
            write_superblock(&self.overlays[index], &superblock)?;
            let (name, devid) = (self.overlays[index].name(), superblock.dev_item.devid);
            self.notes
                .push(format!("{name} has no superblock: its tree blocks are of device {devid}"));
        }
        Ok(())
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.overlays.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect()
    }

    fn tell_search(&self, now: crate::Progress) -> ControlFlow<()> {
        let crate::Progress { done_bytes, total_bytes } = now;
        (self.tell)(Progress { phase: Phase::Trees, done_bytes, total_bytes })
    }

    fn note(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// Writes the superblock that counts over every copy that differs from it, on each device.
fn recover_superblocks(overlays: &[Arc<Overlay>]) -> Result<(), RepairError> {
    overlays.iter().try_for_each(|overlay| write_superblock(overlay, &scan(&**overlay)?.superblock))
}

/// Writes a superblock to all of its places on a device.
fn write_superblock(overlay: &Overlay, superblock: &Superblock) -> Result<(), RepairError> {
    for offset in OFFSETS {
        let len_bytes = overlay.len_bytes().min(superblock.dev_item.total_bytes.get());
        if offset.0 + (superblock.as_bytes().len() as u64) < len_bytes {
            let mut copy = superblock.clone();
            copy.bytenr = offset.0.into();
            copy.flags = (copy.flags.get() & !SUPER_FLAG_ERROR).into();
            copy.update_checksum();
            overlay.write_at(copy.as_bytes(), offset.0).map_err(WriteError::from)?;
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
