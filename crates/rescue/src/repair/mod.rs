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
mod files;
mod plan;
mod readable;
mod references;
mod space;
mod update;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_check::{Kind, KindFindings, Options, Progress, Report, Stopped, check};
use larder_device::{Device, Overlay};
use larder_format::SpaceKind;
use larder_format::superblock::OFFSETS;
use larder_volume::{OpenError, OpenOptions, ReadError, ScanError, Volume, WriteError, scan};
use zerocopy::IntoBytes;

use crate::undo::{UndoError, apply};
pub use plan::{Action, Step};
use readable::Readable;

/// Bytes of changes that each device's overlay keeps in memory.
const OVERLAY_BYTES: usize = 64 << 20;
/// How often findings are answered.
const MOST_ROUNDS: usize = 5;
/// Findings of one kind that are answered at once.
const KEPT_PER_KIND: usize = 10_000;

/// What to do besides what findings ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Read all data, too, and mend copies of it.
    pub check_data_csum: bool,
    /// Build the extent tree, block groups and free space anew.
    pub init_extent_tree: bool,
    /// Compute every checksum anew from the data as it is.
    pub init_csum_tree: bool,
    /// Drop the caches of free space, or build the free space tree anew.
    pub clear_space_cache: bool,
    /// Build the tree of uuids anew.
    pub clear_uuid_tree: bool,
    /// Drop the log.
    pub zero_log: bool,
    /// Set the sizes of devices right.
    pub fix_device_size: bool,
    /// Answer only findings of which this is done; all if empty. Others may remain.
    pub only: &'static [Action],
    /// Findings that were there before may remain.
    pub partly: bool,
}

impl Wishes {
    /// Whether findings of a kind are answered.
    fn answers(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&Action::of(kind))
    }

    /// Whether so many findings of a kind may remain.
    fn allows(&self, kind: Kind, count: u64, before: &Report) -> bool {
        let may_remain = self.partly || !self.answers(kind);
        may_remain && count <= before.count_of(kind)
    }

    fn is_any(&self) -> bool {
        self.init_extent_tree
            || self.init_csum_tree
            || self.clear_space_cache
            || self.clear_uuid_tree
            || self.zero_log
            || self.fix_device_size
    }
}

/// Why a repair is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A device has no sound superblock.
    #[error(transparent)]
    Superblock(#[from] ScanError),
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Something cannot be read that is needed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The overlay cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The changes cannot be applied.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The caller stopped it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// There is no room for the new tree blocks.
    #[error("no {} space is free for the new tree blocks", .0.name())]
    NoSpace(SpaceKind),
    /// A state that no repair is known for.
    #[error("not possible yet where {0}")]
    Unsupported(&'static str),
    /// A block that is needed is lost.
    #[error("no copy of block {logical} of tree {tree} can be read")]
    Lost {
        /// The tree.
        tree: u64,
        /// Its address.
        logical: u64,
    },
    /// The size of the new trees does not settle.
    #[error("the size of the new extent tree does not settle")]
    Unsettled,
}

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
    if !before.kinds.iter().any(|it| wishes.answers(it.kind)) && !wishes.is_any() {
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
            let now = Readable::of(&open(&overlays, false)?);
            let is_fresh = |sector: u64| fresh_checksums.contains(&sector);
            reasons.extend(readable.missing_in(&now, &is_fresh));
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Proved } else { Verdict::Refused(reasons) };
    Ok(Prepared { steps: plan::steps(&before), notes, before, after, verdict, overlays })
}

fn open(overlays: &[Arc<Overlay>], write: bool) -> Result<Volume, OpenError> {
    let devices = overlays.iter().map(|it| Arc::clone(it) as Arc<dyn Device>).collect();
    let options = OpenOptions { write, any_state: !write, ..OpenOptions::default() };
    Volume::open(devices, &options)
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
            wishes = Wishes { only: wishes.only, ..Wishes::default() };
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
