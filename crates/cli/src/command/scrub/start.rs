//! `larder scrub start` and `resume`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use larder::{ScrubFinding, ScrubbedFile};
use larder_objects::parse_size;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::command::scrub::background;
use crate::command::scrub::place::{Kind, Place};
use crate::command::scrub::record::{Claim, Record, read};
use crate::command::scrub::run::{End, Ended, Planned, Run, Scrubbing};
use crate::command::scrub::shown::{State, Style, fields, together, write_counters, write_times};
use crate::global::Global;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{is_error_terminal, stdout};
use crate::print::{Name, write_json};
use crate::source::Source;
use crate::units::Units;

/// The exit code if there is nothing to resume.
const NOTHING_TO_RESUME: u8 = 2;
/// The exit code if something is beyond repair.
const BEYOND_REPAIR: u8 = 3;
/// The class of ioprio_set(2) for when nobody else needs the device.
const IDLE: u8 = 3;

/// What starting and resuming have in common.
#[derive(Debug, Args)]
struct Options {
    /// Stay in the foreground until it has ended, and show what it has met
    #[arg(short = 'B')]
    foreground: bool,
    /// Show that of each device (with -B)
    #[arg(short = 'd')]
    per_device: bool,
    /// Repair nothing
    #[arg(short = 'r')]
    read_only: bool,
    /// Show all counters
    #[arg(short = 'R')]
    raw: bool,
    /// Print errors only
    #[arg(short = 'q')]
    quiet: bool,
    /// The class of its I/O: 0 none, 1 realtime, 2 best effort, 3 idle (see ionice(1))
    #[arg(short = 'c', value_name = "CLASS", default_value_t = IDLE, value_parser = clap::value_parser!(u8).range(0..4))]
    class: u8,
    /// The priority in that class: 0 to 7
    #[arg(short = 'n', value_name = "PRIORITY", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    priority: u8,
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, of larder or of the kernel; one of its devices, and
    /// then only that; or an image
    #[arg(value_name = "PATH or DEVICE")]
    path: PathBuf,
}

/// Verify every copy on every device, and repair bad ones from good ones
///
/// All devices are read at once, each in the order of its addresses, superblocks too. What has a
/// checksum and another copy is repaired. Of data without checksums copies are compared, and no one
/// knows which is right. Of RAID5 and RAID6 nothing is repaired, and parity is compared.
///
/// On an image, the command prints each finding, with its files in all subvolumes and snapshots. The
/// server of a mount writes findings to the system's log, as the kernel does.
///
/// Without -B it goes on in the background. /var/lib/btrfs has what it met, for 'scrub status' and
/// 'scrub resume', also those of btrfs-progs. For other users than root that is
/// ~/.local/state/btrfs.
///
/// Exit codes:
///   0  everything is sound, or repaired, or it goes on in the background
///   1  it failed, or was cancelled
///   3  something is beyond repair
///
/// Examples:
///   larder scrub start -B disk.img
///   larder scrub start -Bd --device disk2.img disk1.img
///   larder scrub start ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Start {
    /// Start although a scrub seems to run, or its record cannot be read
    #[arg(short = 'f')]
    force: bool,
    /// The most bytes of each device in a second, with K, M, G; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,
    #[command(flatten)]
    options: Options,
}

/// Resume a scrub that was cancelled or interrupted, where it was
///
/// Exit codes: those of 'scrub start', and 2 if there is nothing to resume.
///
/// Example: larder scrub resume -B disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Resume {
    #[command(flatten)]
    options: Options,
}

impl Start {
    pub fn run(self, global: &Global) -> Outcome {
        self.options.run(global, &Begin::New { force: self.force, limit: self.limit })
    }
}

impl Resume {
    pub fn run(self, global: &Global) -> Outcome {
        self.options.run(global, &Begin::Resumed)
    }
}

/// How it begins.
enum Begin {
    New { force: bool, limit: Option<u64> },
    Resumed,
}

impl Begin {
    /// The scrub to run of a device, after this record.
    fn plan(&self, devid: u64, record: Option<&Record>) -> Option<Planned> {
        match self {
            Self::New { .. } => Some(Planned { devid, start: 0, before: Record::new(devid) }),
            Self::Resumed => {
                let before = *record.filter(|record| record.is_resumable())?;
                Some(Planned { devid, start: before.progress.last_physical, before })
            }
        }
    }
}

impl Options {
    fn run(&self, global: &Global, begin: &Begin) -> Outcome {
        let place = Place::find(&self.path, &self.source)?;
        let is_forced = matches!(begin, Begin::New { force: true, .. });
        let quiet = self.quiet || global.is_quiet();
        let is_second = background::is_second();
        if !is_forced && place.is_scrubbed()? {
            let path = self.path.display();
            eprintln!(
                "ERROR: Scrub is already running.\n\
                 To cancel use 'btrfs scrub cancel {path}'.\n\
                 To see the status use 'btrfs scrub status [-d] {path}'"
            );
            return Ok(ExitCode::FAILURE);
        }
        let records = match read(place.uuid) {
            Err(_) if is_forced => Vec::new(),
            records => records?,
        };
        let of = |devid: u64| records.iter().find(|record| record.devid == devid);
        let plan = place.devices.iter().filter_map(|it| begin.plan(it.id, of(it.id)));
        let planned: Vec<Planned> = plan.collect();
        if planned.is_empty() {
            if global.is_json() {
                let nothing = json!({ "uuid": place.uuid.to_string(), "devices": [] });
                write_json(&mut stdout(), "scrub", &nothing)?;
            } else if !quiet {
                let path = self.path.display();
                println!("scrub: nothing to resume for {path}, fsid {}", place.uuid);
            }
            return Ok(ExitCode::from(NOTHING_TO_RESUME));
        }
        if !self.foreground && !is_second {
            return self.go_to_background(global, &place, quiet, begin);
        }
        let is_planned = |record: &&Record| planned.iter().any(|one| one.devid == record.devid);
        let others: Vec<Record> = records.iter().filter(|it| !is_planned(it)).copied().collect();
        self.scrub(global, &place, &planned, &others, quiet, begin)
    }

    fn go_to_background(
        &self,
        global: &Global,
        place: &Place,
        quiet: bool,
        begin: &Begin,
    ) -> Outcome {
        let process = match background::start()? {
            Ok(process) => process,
            Err(code) => return Ok(code),
        };
        if global.is_json() {
            let started = json!({ "uuid": place.uuid.to_string(), "pid": process });
            write_json(&mut stdout(), "scrub", &started)?;
        } else if !quiet {
            let word = if matches!(begin, Begin::Resumed) { "resumed" } else { "started" };
            let (path, uuid) = (self.path.display(), place.uuid);
            println!("scrub {word} on {path}, fsid {uuid} (pid={process})");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn scrub(
        &self,
        global: &Global,
        place: &Place,
        planned: &[Planned],
        others: &[Record],
        quiet: bool,
        begin: &Begin,
    ) -> Outcome {
        let (limit, uuid) = match begin {
            Begin::New { limit, .. } => (*limit, place.uuid),
            Begin::Resumed => (None, place.uuid),
        };
        let used_bytes = place.used_bytes(&self.source)?;
        let mut claim = None;
        let scrubbing = match &place.kind {
            Kind::Mounted(directory) => {
                ensure!(
                    limit.is_none(),
                    "{}: is mounted; 'larder scrub limit' sets the limits of its devices",
                    self.path.display()
                );
                Scrubbing::Mounted(directory.try_clone()?)
            }
            Kind::Image => {
                claim = Some(Claim::take(uuid)?.context("the image is being scrubbed")?);
                let filesystem = place.open(&self.source, self.read_only)?;
                let limit = limit.filter(|limit| *limit > 0);
                place.devices.iter().for_each(|it| filesystem.set_scrub_limit(it.id, limit));
                Scrubbing::Image(Box::new(filesystem))
            }
        };
        interrupt::watch()?;
        if background::is_second() {
            background::say_begun()?;
        }
        let findings: Mutex<Vec<Value>> = Mutex::default();
        let found = |finding: ScrubFinding| {
            if finding.is_left() || !quiet {
                eprintln!("WARNING: {finding}");
            }
            if global.is_json() {
                findings.lock().push(finding_fields(&finding));
            }
        };
        let run = Run {
            uuid,
            read_only: self.read_only,
            io_priority: Some((self.class, self.priority)),
            others,
            total_bytes: used_bytes,
            shows_progress: !quiet && is_error_terminal(),
            found: &found,
        };
        let ended = scrubbing.run(planned, &run);
        if let Scrubbing::Image(filesystem) = scrubbing {
            // What the devices counted.
            filesystem.close()?;
        }
        drop(claim);
        let code = self.told(&ended);
        if !background::is_second() && (!quiet || global.is_json()) {
            self.show(global, place, planned, &ended, &findings.into_inner())?;
        }
        Ok(code)
    }

    /// Tells of errors. Returns the exit code.
    fn told(&self, ended: &[Ended]) -> ExitCode {
        let mut fails = false;
        for one in ended {
            match &one.end {
                End::Finished => {}
                End::Cancelled => fails = true,
                End::Missing => eprintln!("WARNING: device {} not present", one.devid),
                End::Failed { problem } => {
                    let path = self.path.display();
                    let devid = one.devid;
                    eprintln!("ERROR: scrubbing {path} failed for device id {devid}: {problem}");
                    fails = true;
                }
            }
        }
        let any = |of: fn(&Ended) -> u64| ended.iter().any(|one| of(one) > 0);
        let is_lost = any(|one| one.progress.uncorrectable_errors);
        match (fails, is_lost) {
            (true, _) => ExitCode::FAILURE,
            (false, true) => {
                eprintln!("ERROR: there are uncorrectable errors");
                ExitCode::from(BEYOND_REPAIR)
            }
            (false, false) => {
                if any(|one| one.progress.corrected_errors) {
                    eprintln!("WARNING: errors detected during scrubbing, corrected");
                }
                ExitCode::SUCCESS
            }
        }
    }

    fn show(
        &self,
        global: &Global,
        place: &Place,
        planned: &[Planned],
        ended: &[Ended],
        findings: &[Value],
    ) -> anyhow::Result<()> {
        let record = |one: &Ended| {
            let before = planned.iter().find(|it| it.devid == one.devid);
            let before = before.map_or_else(|| Record::new(one.devid), |it| it.before);
            Record {
                progress: one.progress,
                started: if before.started == 0 { one.started } else { before.started },
                duration: before.duration + one.duration,
                is_finished: matches!(one.end, End::Finished),
                is_cancelled: matches!(one.end, End::Cancelled),
                ..before
            }
        };
        let records: Vec<Record> = ended.iter().map(record).collect();
        let device = |id: u64| place.devices.iter().find(|device| device.id == id);
        let allocated = |id: u64| device(id).map_or(0, |device| device.allocated_bytes);
        let name = |id: u64| device(id).map_or("", |device| &device.name);
        let mut out = stdout();
        if global.is_json() {
            let devices: Vec<Value> = records
                .iter()
                .map(|it| fields(it, State::of(it, false), name(it.devid), allocated(it.devid)))
                .collect();
            let uuid = place.uuid.to_string();
            let all = json!({ "uuid": uuid, "devices": devices, "findings": findings });
            return Ok(write_json(&mut out, "scrub", &all)?);
        }
        let style = Style { raw: self.raw, units: Units::default() };
        if self.per_device {
            for it in &records {
                let state = State::of(it, false);
                let word = if it.is_finished { "done" } else { "canceled" };
                writeln!(out, "\nScrub device {} (id {}) {word}", name(it.devid), it.devid)?;
                write_times(&mut out, it, state)?;
                write_counters(&mut out, it, state, allocated(it.devid), style)?;
            }
            return Ok(());
        }
        let all = together(&records);
        let state = State::of(&all, false);
        let word = if all.is_finished { "done" } else { "canceled" };
        writeln!(out, "scrub {word} for {}", place.uuid)?;
        write_times(&mut out, &all, state)?;
        let total = records.iter().map(|it| allocated(it.devid)).sum();
        write_counters(&mut out, &all, state, total, style)?;
        Ok(())
    }
}

/// A finding for scripts.
fn finding_fields(finding: &ScrubFinding) -> Value {
    let file =
        |file: &ScrubbedFile| json!({ "path": Name::from(&file.path), "offset": file.offset });
    let files: Vec<Value> = finding.files.iter().map(file).collect();
    json!({
        "devid": finding.device,
        "physical": finding.physical,
        "logical": finding.logical,
        "length": finding.len_bytes,
        "problem": finding.problem,
        "fate": finding.fate.in_words(),
        "files": files,
    })
}
