//! What a watcher of many mounts wants to know of this one, in the text format of Prometheus.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder::JobStatus;
use larder::objects::{Facts, facts_of};

use super::Server;

/// The text, one metric after the other.
#[derive(Default)]
struct Text(String);

impl Text {
    /// A metric, with its values by their labels.
    fn put(&mut self, name: &str, kind: &str, help: &str, values: &[(&str, f64)]) {
        // A string takes everything.
        let _ = writeln!(self.0, "# HELP larder_{name} {help}\n# TYPE larder_{name} {kind}");
        for (labels, value) in values {
            let _ = match *labels {
                "" => writeln!(self.0, "larder_{name} {value}"),
                labels => writeln!(self.0, "larder_{name}{{{labels}}} {value}"),
            };
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.put(name, "gauge", help, &[("", value)]);
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.put(name, "counter", help, &[("", value)]);
    }
}

impl Server {
    /// The metrics of the file system, and of the object storage that it lies on.
    pub(super) fn metrics(&self) -> String {
        let (mut text, health) = (Text::default(), self.health());
        text.gauge("generation", "The last commit.", health.generation as f64);
        if let Some(time) = health.committed_at {
            let help = "When the last commit was made, in seconds since 1970.";
            text.gauge("commit_timestamp_seconds", help, seconds_since_1970(time));
        }
        let is = |is: bool| f64::from(u8::from(is));
        let help = "Whether an error made the file system read-only.";
        text.gauge("read_only", help, is(health.made_read_only.is_some()));
        let help = "Whether programs wait for a device.";
        text.gauge("waits", help, is(health.waits.is_some()));
        let help = "Bad copies that were overwritten with good content.";
        text.counter("healed_copies_total", help, health.healed_copies as f64);
        if let Ok(errors) = self.filesystem.device_errors() {
            let sum =
                |of: fn(&larder::DeviceErrors) -> u64| errors.iter().map(of).sum::<u64>() as f64;
            let values = [
                ("kind=\"write\"", sum(|it| it.writes)),
                ("kind=\"read\"", sum(|it| it.reads)),
                ("kind=\"flush\"", sum(|it| it.flushes)),
                ("kind=\"corruption\"", sum(|it| it.corruptions)),
                ("kind=\"generation\"", sum(|it| it.generations)),
            ];
            text.put("device_errors_total", "counter", "Errors of all devices.", &values);
        }
        self.put_devices(&mut text);
        self.put_jobs(&mut text);
        if let Some(facts) = facts_of(&self.filesystem) {
            put_objects(&mut text, &facts);
        }
        text.0
    }

    /// Devices that missed commits.
    fn put_devices(&self, text: &mut Text) {
        let devices = self.filesystem.devices();
        let labels: Vec<_> = devices.iter().map(|it| format!("device=\"{}\"", it.id)).collect();
        let is_stale = devices.iter().map(|device| f64::from(u8::from(device.is_stale)));
        let values: Vec<_> = labels.iter().map(String::as_str).zip(is_stale).collect();
        text.put("device_outdated", "gauge", "Whether a device missed commits.", &values);
    }

    /// Long work that goes on.
    fn put_jobs(&self, text: &mut Text) {
        let jobs: Vec<_> = self.filesystem.jobs().running().iter().map(|it| it.status()).collect();
        let labels: Vec<_> = jobs.iter().map(|job| format!("job=\"{}\"", job.kind)).collect();
        let values = |of: fn(&JobStatus) -> f64| -> Vec<(&str, f64)> {
            labels.iter().map(String::as_str).zip(jobs.iter().map(of)).collect()
        };
        if jobs.is_empty() {
            return;
        }
        let done = values(|job| job.done_bytes as f64);
        text.put("job_done_bytes", "gauge", "What long work has done.", &done);
        let total = values(|job| job.total_bytes as f64);
        text.put("job_total_bytes", "gauge", "What long work has to do.", &total);
        let seconds = values(|job| job.duration.as_secs_f64());
        text.put("job_seconds", "gauge", "How long it has run.", &seconds);
    }
}

fn put_objects(text: &mut Text, facts: &Facts) {
    let requests = &facts.requests;
    let numbers = [
        ("kind=\"get\"", requests.gets as f64),
        ("kind=\"put\"", requests.creates as f64),
        ("kind=\"replace\"", requests.replaces as f64),
        ("kind=\"delete\"", requests.deletes as f64),
        ("kind=\"list\"", requests.lists as f64),
    ];
    let help = "Requests to object storage, each attempt counted.";
    text.put("objects_requests_total", "counter", help, &numbers);
    let bytes = [
        ("kind=\"get\"", requests.got_bytes as f64),
        ("kind=\"put\"", requests.created_bytes as f64),
        ("kind=\"replace\"", requests.replaced_bytes as f64),
    ];
    let help = "Bytes that requests moved.";
    text.put("objects_bytes_total", "counter", help, &bytes);
    let found = [
        ("in=\"memory\"", facts.found_in_memory_bytes as f64),
        ("in=\"disk\"", facts.found_on_disk_bytes as f64),
        ("in=\"store\"", facts.fetched_bytes as f64),
    ];
    let help = "Where content of segments was found.";
    text.put("objects_found_bytes_total", "counter", help, &found);
    let help = "How often the store began to fail for now.";
    text.counter("objects_outages_total", help, facts.outages as f64);
    let help = "How long the store failed for now.";
    text.counter("objects_outage_seconds_total", help, facts.outage_time.as_secs_f64());
    let help = "How old the oldest write is that the store lacks.";
    let undurable = facts.undurable.map_or(0.0, |age: Duration| age.as_secs_f64());
    text.gauge("objects_undurable_seconds", help, undurable);
    if let Some(journal) = facts.journal {
        let help = "How much the journal on this machine has that the store lacks.";
        text.gauge("objects_journal_bytes", help, journal.bytes as f64);
        let help = "Whether the journal is used no more, since its disk failed.";
        text.gauge("objects_journal_given_up", help, f64::from(u8::from(journal.is_given_up)));
    }
    if let Some(state) = facts.reading {
        let help = "The number of the state that is shown.";
        text.gauge("objects_shown_state", help, state.number as f64);
        let help = "When the state that is shown was made, by the clock of the store.";
        text.gauge("objects_shown_state_timestamp_seconds", help, state.time as f64);
        let help = "Whether a lease holds on the state that is shown.";
        text.gauge("objects_lease", help, f64::from(u8::from(facts.has_lease)));
    }
    if let Some(writing) = facts.writing {
        let help = "How often the file system was opened for writing.";
        text.gauge("objects_epoch", help, f64::from(writing.epoch));
        text.gauge("objects_state", "The number of the state.", writing.state.number as f64);
        let help = "When the state was made, by the clock of the store.";
        text.gauge("objects_state_timestamp_seconds", help, writing.state.time as f64);
        let help = "States that can be read.";
        text.gauge("objects_kept_states", help, writing.kept_states as f64);
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as f64
}
