//! Scrubs as text, in the words of btrfs-progs, and as JSON.

use std::io::{self, Write};

use larder_ioctl::ScrubProgress;
use serde_json::{Map, Value, json};

use crate::command::scrub::record::{COUNTERS, Record};
use crate::print::calendar_time;
use crate::units::Units;

/// How far a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Finished,
    /// It was cancelled.
    Aborted,
    /// Its process ended before it.
    Interrupted,
}

impl State {
    pub fn of(record: &Record, is_running: bool) -> Self {
        match record {
            Record { is_finished: true, .. } => Self::Finished,
            _ if is_running => Self::Running,
            Record { is_cancelled: true, .. } => Self::Aborted,
            _ => Self::Interrupted,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How to show counters.
#[derive(Clone, Copy)]
pub struct Style {
    pub raw: bool,
    pub units: Units,
}

/// The times of a scrub, and how far it is.
pub fn write_times(out: &mut impl Write, record: &Record, state: State) -> io::Result<()> {
    if record.started == 0 {
        return writeln!(out, "\tno stats available");
    }
    let (word, time) = match record.resumed {
        0 => ("started", record.started),
        resumed => ("resumed", resumed),
    };
    writeln!(out, "Scrub {word}:    {}", calendar_time(time.cast_signed()))?;
    writeln!(out, "Status:           {}", state.word())?;
    writeln!(out, "Duration:         {}", hours(record.duration))
}

fn hours(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The counters of a scrub of so many bytes.
pub fn write_counters(
    out: &mut impl Write,
    record: &Record,
    state: State,
    total_bytes: u64,
    style: Style,
) -> io::Result<()> {
    let mut progress = record.progress;
    if style.raw {
        for (name, counter) in COUNTERS {
            if name == "corrected_errors" {
                writeln!(out, "\tunverified_errors: {}", progress.unverified_errors)?;
            }
            writeln!(out, "\t{name}: {}", counter(&mut progress))?;
        }
        return Ok(());
    }
    let done_bytes = scrubbed_bytes(&progress);
    let rate = done_bytes.checked_div(record.duration).unwrap_or(0);
    let show = |bytes| style.units.show(bytes);
    if state == State::Running {
        let left = total_bytes.saturating_sub(done_bytes).checked_div(rate).unwrap_or(0);
        let end = super::run::seconds_now() + left;
        writeln!(out, "Time left:        {}", hours(left))?;
        writeln!(out, "ETA:              {}", calendar_time(end.cast_signed()))?;
    }
    writeln!(out, "Total to scrub:   {}", show(total_bytes))?;
    if state == State::Running {
        let percent = 100.0 * done_bytes as f64 / total_bytes.max(1) as f64;
        writeln!(out, "Bytes scrubbed:   {}  ({percent:.2}%)", show(done_bytes))?;
    }
    writeln!(out, "Rate:             {}/s", show(rate))?;
    write!(out, "Error summary:   ")?;
    let errors = [
        ("read", progress.read_errors),
        ("super", progress.super_errors),
        ("verify", progress.verify_errors),
        ("csum", progress.csum_errors),
    ];
    let (corrected, lost) = (progress.corrected_errors, progress.uncorrectable_errors);
    if errors.iter().all(|(_, count)| *count == 0) && corrected + lost == 0 {
        return writeln!(out, " no errors found");
    }
    for (name, count) in errors.iter().filter(|(_, count)| *count > 0) {
        write!(out, " {name}={count}")?;
    }
    writeln!(out, "\n  Corrected:      {corrected}")?;
    writeln!(out, "  Uncorrectable:  {lost}")?;
    writeln!(out, "  Unverified:     {}", progress.unverified_errors)
}

pub fn scrubbed_bytes(progress: &ScrubProgress) -> u64 {
    progress.data_bytes_scrubbed + progress.tree_bytes_scrubbed
}

/// A record for scripts.
pub fn fields(record: &Record, state: State, name: &str, total_bytes: u64) -> Value {
    let mut progress = record.progress;
    let mut fields = Map::new();
    fields.insert("devid".into(), json!(record.devid));
    fields.insert("path".into(), json!(name));
    let is_known = record.started > 0;
    fields.insert("status".into(), json!(is_known.then(|| state.word())));
    let time = |time: u64| (time > 0).then_some(time);
    fields.insert("started".into(), json!(time(record.started)));
    fields.insert("resumed".into(), json!(time(record.resumed)));
    fields.insert("duration".into(), json!(record.duration));
    fields.insert("total-bytes".into(), json!(total_bytes));
    for (name, counter) in COUNTERS {
        fields.insert(name.replace('_', "-"), json!(*counter(&mut progress)));
    }
    fields.insert("unverified-errors".into(), json!(progress.unverified_errors));
    Value::Object(fields)
}

/// All records as one: the sums, and the latest times.
pub fn together(records: &[Record]) -> Record {
    let mut all = Record::new(0);
    all.is_finished = !records.is_empty();
    for record in records.iter().filter(|record| record.started > 0) {
        let last_physical = all.progress.last_physical.max(record.progress.last_physical);
        all.progress = super::run::sum(all.progress, record.progress);
        all.progress.last_physical = last_physical;
        all.started = all.started.max(record.started);
        all.resumed = all.resumed.max(record.resumed);
        all.duration = all.duration.max(record.duration);
        all.is_cancelled |= record.is_cancelled;
        all.is_finished &= record.is_finished;
    }
    all
}
