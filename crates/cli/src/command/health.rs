//! `larder health`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use larder::{Incomplete, Space};
use larder_ioctl::{DeviceErrors, DeviceInfo, Health as State};
use serde::Serialize;

use crate::device_errors::{Counted, mounted_at, of_image, of_mount, outdated};
use crate::global::Global;
use crate::objects::{Prices, values};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Name, local_time, local_time_with_zone, write_json};
use crate::source::Source;
use crate::space::kind_name;
use crate::units::Units;

/// Metrics by their names with labels.
type Metrics = BTreeMap<String, f64>;

/// Show the health of a file system: last commit, errors, since when and why it is read-only or waits
///
/// Of a mount also long work that goes on, such as a scrub, with its rate and the time that is left.
/// The exit code is 1 if an error made the file system read-only, and 0 otherwise. Errors of
/// devices are also told by `larder device stats`, which can set them to zero. What is not mounted has
/// a last commit and errors of devices; `larder check` says whether it is sound.
///
/// Examples:
///   larder health ~/mnt
///   larder health disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Health {
    #[command(flatten)]
    source: Source,
    /// A directory of a mount, or an image or a device
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

impl Health {
    pub fn run(self, global: &Global) -> Outcome {
        let named = || self.path.display().to_string();
        let (state, devices) = self.state().with_context(named)?;
        let metrics = self.metrics()?;
        let (outdated, incomplete) = self.copies();
        let mut out = stdout();
        if global.is_json() {
            let mut shown = Shown::new(&state, &incomplete, &devices, &metrics);
            shown.outdated_devices = outdated;
            write_json(&mut out, "health", &shown)?;
        } else {
            write_state(&mut out, &state)?;
            write_devices(&mut out, &devices)?;
            for devid in outdated {
                writeln!(
                    out,
                    "Copies:          device {devid} missed commits: \
                     'larder filesystem redundancy --complete' brings it up to date"
                )?;
            }
            for Incomplete { kind, profile, wanted, .. } in incomplete {
                let kind = kind_name(kind);
                writeln!(out, "Copies:          {kind}, {profile}: should be {wanted}")?;
            }
            write_jobs(&mut out, &metrics)?;
            write_objects(&mut out, &metrics)?;
        }
        let is_well = state.made_read_only.is_none();
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Devices that missed commits, and what has fewer copies than it should, as far as that can be
    /// learned.
    fn copies(&self) -> (Vec<u64>, Vec<Incomplete>) {
        let Ok(filesystem) = self.source.overview_of_present(self.path.as_os_str()) else {
            return Default::default();
        };
        let space = filesystem.space().unwrap_or_default();
        (outdated(filesystem.as_ref()), Space::incomplete(&space))
    }

    /// The metrics of a mount.
    fn metrics(&self) -> anyhow::Result<Metrics> {
        let Some(directory) = mounted_at(&self.path) else { return Ok(Metrics::new()) };
        // A server of another version of larder has none.
        let text = larder_ioctl::metrics(File::open(directory)?).unwrap_or_default();
        let text = Prices::from_environment()?.added_to(text);
        Ok(values(&text).map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn state(&self) -> anyhow::Result<(State, Vec<Counted>)> {
        let Some(directory) = mounted_at(&self.path) else {
            let (generation, devices) = of_image(&self.source, &self.path, false)?;
            let (committed_at, made_read_only, waits, healed_copies) = Default::default();
            return Ok((
                State { generation, committed_at, made_read_only, waits, healed_copies },
                devices,
            ));
        };
        let directory = File::open(directory)?;
        let state = larder_ioctl::health(&directory)?;
        Ok((state.context("larder has mounted nothing here")?, of_mount(&directory, false)?))
    }
}

fn write_state(out: &mut impl Write, state: &State) -> io::Result<()> {
    let State { generation, committed_at, made_read_only, waits, healed_copies } = state;
    let when = committed_at.map_or_else(|| "before it was mounted".to_owned(), text_of);
    writeln!(out, "Last commit:     generation {generation}, {when}")?;
    match (made_read_only, waits) {
        (None, None) => writeln!(out, "State:           well")?,
        (None, Some(reason)) => {
            writeln!(out, "State:           waits, and loses nothing meanwhile: {reason}")?;
        }
        (Some((since, reason)), _) => {
            writeln!(out, "State:           read-only since {}: {reason}", text_of(*since))?;
        }
    }
    writeln!(out, "Healed copies:   {healed_copies}")
}

fn write_devices(out: &mut impl Write, devices: &[Counted]) -> io::Result<()> {
    for (device, errors) in devices {
        let name = match &device.path[..] {
            b"" => "missing".to_owned(),
            path => OsStr::from_bytes(path).display().to_string(),
        };
        let DeviceErrors { writes, reads, flushes, corruptions, generations } = errors;
        let text = if *errors == DeviceErrors::default() {
            "no errors".to_owned()
        } else {
            format!(
                "errors: {writes} write, {reads} read, {flushes} flush, {corruptions} corruption, \
                 {generations} generation"
            )
        };
        writeln!(out, "Device {:<9} {name}: {text}", format!("{}:", device.id))?;
    }
    Ok(())
}

/// Long work that goes on.
fn write_jobs(out: &mut impl Write, metrics: &Metrics) -> io::Result<()> {
    let done = metrics.iter().filter_map(|(name, done)| {
        Some((name.strip_prefix("larder_job_done_bytes{job=\"")?.strip_suffix("\"}")?, *done))
    });
    for (job, done) in done {
        let of = |name: &str| {
            metrics.get(&format!("larder_job_{name}{{job=\"{job}\"}}")).copied().unwrap_or_default()
        };
        let (total, seconds) = (of("total_bytes"), of("seconds"));
        let rate = if seconds > 0.0 { done / seconds } else { 0.0 };
        let show = |bytes: f64| Units::default().show(bytes as u64);
        write!(out, "Job:             {job}: {} of {}", show(done), show(total))?;
        match (total - done) / rate {
            left if left.is_finite() && left >= 0.0 => {
                writeln!(out, ", {}/s, {left:.0} s left", show(rate))?;
            }
            _ => writeln!(out)?,
        }
    }
    Ok(())
}

/// What the mount has to do with object storage.
fn write_objects(out: &mut impl Write, metrics: &Metrics) -> io::Result<()> {
    let value = |name: &str| metrics.get(&format!("larder_objects_{name}")).copied();
    let of_kind = |name: &str, kind: &str| value(&format!("{name}{{kind=\"{kind}\"}}"));
    let Some(outages) = value("outages_total") else { return Ok(()) };
    let requests = ["get", "put", "replace", "delete", "list"]
        .map(|kind| format!("{} {kind}", of_kind("requests_total", kind).unwrap_or_default()));
    let costs = ["get", "put", "list", "delete", "out"];
    let cost: f64 = costs.iter().filter_map(|kind| of_kind("cost_dollars_total", kind)).sum();
    writeln!(out, "Requests:        {}, for about ${cost:.4}", requests.join(", "))?;
    let undurable = match value("undurable_seconds").unwrap_or_default() {
        0.0 => "everything that was committed".to_owned(),
        seconds => format!("everything, except what was written in the last {seconds:.0} s"),
    };
    writeln!(out, "The store has:   {undurable}")?;
    if let (Some(bytes), Some(is_given_up)) = (value("journal_bytes"), value("journal_given_up")) {
        let journal = match (is_given_up, bytes) {
            (1.0, _) => "given up since its disk failed: fsync waits for the store".to_owned(),
            (_, 0.0) => "nothing that the store lacks".to_owned(),
            (_, bytes) => format!("{bytes:.0} bytes that the store lacks"),
        };
        writeln!(out, "The journal has: {journal}")?;
    }
    let seconds = value("outage_seconds_total").unwrap_or_default();
    writeln!(out, "Outages:         {outages}, of {seconds:.0} s together")?;
    if let (Some(state), Some(time)) =
        (value("shown_state"), value("shown_state_timestamp_seconds"))
    {
        let until = match value("lease") {
            Some(1.0) => "with a lease: it stays as long as it is mounted",
            _ => "without a lease: 'larder objects states' says how long it is kept",
        };
        writeln!(out, "Shown state:     {state} of {}, {until}", local_time(time as i64))?;
        return Ok(());
    }
    if let (Some(epoch), Some(states)) = (value("epoch"), value("kept_states")) {
        writeln!(out, "Kept states:     {states}, in epoch {epoch}")?;
    }
    Ok(())
}

fn text_of(time: SystemTime) -> String {
    local_time(seconds_of(time))
}

fn seconds_of(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64
}

/// The health of a mount as JSON.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown<'m> {
    generation: u64,
    /// None before the first commit of the mount.
    committed: Option<String>,
    /// None while the file system is well.
    read_only: Option<ReadOnly>,
    /// Why requests of a device wait, if any does.
    waits: Option<String>,
    healed_copies: u64,
    /// Devices that missed commits.
    outdated_devices: Vec<u64>,
    /// Block groups that have fewer copies than they should.
    incomplete: Vec<Groups>,
    devices: Vec<Device>,
    /// Of a mount, by their names for Prometheus.
    metrics: &'m Metrics,
}

/// What an error did.
#[derive(Serialize)]
struct ReadOnly {
    since: String,
    reason: String,
}

/// Block groups of one kind and profile, by the names that `filesystem redundancy` has for them.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Groups {
    bg_type: &'static str,
    bg_profile: String,
    wanted: String,
    used: u64,
}

impl Groups {
    fn new(incomplete: &Incomplete) -> Self {
        Self {
            bg_type: kind_name(incomplete.kind),
            bg_profile: incomplete.profile.to_string(),
            wanted: incomplete.wanted.to_string(),
            used: incomplete.used_bytes,
        }
    }
}

/// A device and its counters, by the names that `device stats` has for them.
#[derive(Serialize)]
struct Device {
    devid: u64,
    /// None if it is missing.
    device: Option<Name>,
    write_io_errs: u64,
    read_io_errs: u64,
    flush_io_errs: u64,
    corruption_errs: u64,
    generation_errs: u64,
}

impl<'m> Shown<'m> {
    fn new(
        state: &State,
        incomplete: &[Incomplete],
        devices: &[Counted],
        metrics: &'m Metrics,
    ) -> Self {
        let time = |time| local_time_with_zone(seconds_of(time));
        let read_only = state.made_read_only.as_ref();
        Self {
            generation: state.generation,
            committed: state.committed_at.map(time),
            read_only: read_only
                .map(|(since, reason)| ReadOnly { since: time(*since), reason: reason.clone() }),
            waits: state.waits.clone(),
            healed_copies: state.healed_copies,
            outdated_devices: Vec::new(),
            incomplete: incomplete.iter().map(Groups::new).collect(),
            devices: devices.iter().map(|(info, errors)| Device::new(info, *errors)).collect(),
            metrics,
        }
    }
}

impl Device {
    fn new(info: &DeviceInfo, errors: DeviceErrors) -> Self {
        let DeviceErrors { writes, reads, flushes, corruptions, generations } = errors;
        Self {
            devid: info.id,
            device: (!info.path.is_empty()).then(|| Name::of_bytes(&info.path)),
            write_io_errs: writes,
            read_io_errs: reads,
            flush_io_errs: flushes,
            corruption_errs: corruptions,
            generation_errs: generations,
        }
    }
}
