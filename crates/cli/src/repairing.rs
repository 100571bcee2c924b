//! Repairs: of `check --repair`, and of those commands of `rescue` that repair one thing.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use larder::device::Place;
use larder_check::Progress as Checked;
use larder_device::{Access, Device};
use larder_rescue::repair::{Prepared, Step, Verdict, Wishes, prepare};
use larder_rescue::undo;
use parking_lot::Mutex;
use serde::Serialize;

use crate::outcome::Outcome;
use crate::output::stdout;
use crate::place::located;
use crate::progress::Progress;
use crate::source::expect_no_user;

/// Files of a step that are named; the others are only counted.
const MOST_FILES: usize = 5;

/// What to repair, and how.
pub struct Repairing {
    pub wishes: Wishes,
    /// Whether to only say what would be done.
    pub plan_only: bool,
    /// The file that keeps what is overwritten.
    pub undo: Option<PathBuf>,
    pub json: bool,
    pub quiet: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object<'a> {
    verdict: &'static str,
    written: bool,
    findings_left: u64,
    overwritten_bytes: u64,
    undo: Option<String>,
    reasons: &'a [String],
    steps: Vec<StepObject>,
    notes: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct StepObject {
    kind: &'static str,
    count: u64,
    action: String,
    loses: Option<&'static str>,
    files: Vec<String>,
}

impl From<&Step> for StepObject {
    fn from(step: &Step) -> Self {
        Self {
            kind: step.kind.id(),
            count: step.count,
            action: step.action.to_string(),
            loses: step.action.loses(),
            files: step.files.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Repairing {
    /// Plans the repair of the file system on `devices`, and carries it out unless only the plan is
    /// wanted. Success means that the file system is sound now, or would be.
    pub fn run(&self, devices: &[PathBuf], place: Place) -> Outcome {
        expect_no_user(&located(devices, place))?;
        let access = if self.plan_only { Access::ReadOnly } else { Access::ReadWrite };
        let opened = devices.iter().map(|path| larder_image::open(path, access, place));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let undo = self.undo.clone().unwrap_or_else(|| undo_beside(&devices[0]));
        ensure!(
            self.plan_only || undo.symlink_metadata().is_err(),
            "{}: exists: if a repair was interrupted, 'larder rescue undo' with it gives back the \
             state before; otherwise choose another file with --undo, or remove it",
            undo.display()
        );
        let prepared = self.prepare(opened)?;
        let mut overwritten_bytes = prepared.changed_bytes()?;
        let is_written = matches!(prepared.verdict, Verdict::Proved) && !self.plan_only;
        if is_written {
            let names = devices.iter().map(std::path::absolute).collect::<io::Result<Vec<_>>>()?;
            overwritten_bytes = prepared.apply(&names, &undo)?;
            if self.undo.is_none() {
                undo::forget(&undo).with_context(|| undo.display().to_string())?;
            }
        }
        if !matches!(prepared.verdict, Verdict::Proved) {
            overwritten_bytes = 0;
        }
        self.tell(&prepared, is_written, overwritten_bytes)?;
        Ok(match prepared.verdict {
            Verdict::Sound => ExitCode::SUCCESS,
            Verdict::Proved if prepared.after.is_clean() || !self.wishes.only.is_empty() => {
                ExitCode::SUCCESS
            }
            Verdict::Proved | Verdict::Refused(_) => ExitCode::FAILURE,
        })
    }

    fn prepare(&self, devices: Vec<std::sync::Arc<dyn Device>>) -> anyhow::Result<Prepared> {
        let progress = Mutex::new((Progress::of_steps(0), None));
        let show = |now: Checked| {
            if !self.quiet {
                let mut guard = progress.lock();
                let (line, phase) = &mut *guard;
                if phase.replace(now.phase) != Some(now.phase) {
                    line.start(&now.phase.to_string(), now.total_bytes);
                }
                line.set(now.done_bytes);
            }
            ControlFlow::Continue(())
        };
        Ok(prepare(devices, &self.wishes, &show)?)
    }

    fn tell(&self, prepared: &Prepared, is_written: bool, bytes: u64) -> anyhow::Result<()> {
        let mut out = io::BufWriter::new(stdout());
        let reasons = match &prepared.verdict {
            Verdict::Refused(reasons) => &reasons[..],
            _ => &[],
        };
        if self.json {
            let undo = self.undo.as_ref().filter(|_| is_written);
            let object = Object {
                verdict: match prepared.verdict {
                    Verdict::Sound => "sound",
                    Verdict::Proved => "proved",
                    Verdict::Refused(_) => "refused",
                },
                written: is_written,
                findings_left: prepared.after.count(),
                overwritten_bytes: bytes,
                undo: undo.map(|path| path.display().to_string()),
                reasons,
                steps: prepared.steps.iter().map(StepObject::from).collect(),
                notes: &prepared.notes,
            };
            serde_json::to_writer_pretty(&mut out, &object)?;
            writeln!(out)?;
        } else {
            self.write_text(&mut out, prepared, is_written, bytes)?;
        }
        out.flush()?;
        Ok(())
    }

    fn write_text(
        &self,
        out: &mut impl Write,
        prepared: &Prepared,
        is_written: bool,
        bytes: u64,
    ) -> io::Result<()> {
        for step in &prepared.steps {
            let Step { kind, count, action, files } = step;
            writeln!(out, "{kind}: {count}: {action}")?;
            files.iter().take(MOST_FILES).try_for_each(|file| writeln!(out, "    {file}"))?;
            if files.len() > MOST_FILES {
                writeln!(out, "    and in {} more", files.len() - MOST_FILES)?;
            }
            if let Some(lost) = action.loses() {
                writeln!(out, "    cannot be recovered: {lost}")?;
            }
        }
        prepared.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
        match &prepared.verdict {
            Verdict::Sound if prepared.before.is_clean() => {
                writeln!(out, "the file system is sound: there is nothing to repair")
            }
            Verdict::Sound => {
                writeln!(out, "there is nothing of that to repair; 'larder check' finds more")
            }
            Verdict::Proved if is_written => {
                let left = findings_left(prepared);
                writeln!(out, "repaired: {left} left; {bytes} bytes were overwritten")?;
                self.undo.iter().try_for_each(|undo| {
                    let undo = undo.display();
                    writeln!(out, "'larder rescue undo {undo}' gives back the state before")
                })
            }
            Verdict::Proved => {
                let left = findings_left(prepared);
                writeln!(
                    out,
                    "the repair would overwrite {bytes} bytes: {left} would remain, and all that \
                     can be read would stay as it is"
                )
            }
            Verdict::Refused(reasons) => {
                reasons.iter().try_for_each(|reason| writeln!(out, "refused: {reason}"))?;
                writeln!(out, "nothing was written")
            }
        }
    }
}

fn findings_left(prepared: &Prepared) -> String {
    match prepared.after.count() {
        0 => "no finding".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    }
}

/// The undo file if none is named: beside an image, in the current directory for a device. It goes
/// when the repair is whole.
fn undo_beside(device: &Path) -> PathBuf {
    let mut name = device.file_name().unwrap_or_default().to_owned();
    name.push(".larder-undo");
    let is_file = device.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_file { device.with_file_name(name) } else { PathBuf::from(name) }
}
