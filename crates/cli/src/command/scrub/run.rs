//! Running the scrubs of a file system: all devices at once, each in a thread.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder::{Filesystem, JobKind, ScrubEnd, ScrubFinding, ScrubOptions, Uuid};
use larder_fuse::scrub_progress;
use larder_ioctl::ScrubProgress;
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::command::scrub::record::{COUNTERS, Record, write};
use crate::interrupt;
use crate::progress::Progress;

/// How often the record is written.
const RECORDED: Duration = Duration::from_secs(5);
/// How often somebody looks.
const LOOKS: Duration = Duration::from_millis(50);

/// A file system whose devices are scrubbed.
pub enum Scrubbing {
    Mounted(File),
    Image(Box<Filesystem>),
}

/// The scrub of a device to run.
pub struct Planned {
    pub devid: u64,
    pub start: u64,
    /// What the record has after the parts that were scrubbed before.
    pub before: Record,
}

/// How the scrub of a device ended.
pub struct Ended {
    pub devid: u64,
    /// What this run has met.
    pub progress: ScrubProgress,
    /// When it began, in seconds since 1970, and for how many seconds it ran.
    pub started: u64,
    pub duration: u64,
    pub end: End,
}

pub enum End {
    Finished,
    Cancelled,
    Missing,
    Failed { problem: String },
}

/// How to run.
pub struct Run<'r> {
    pub uuid: Uuid,
    pub read_only: bool,
    /// Class and priority, if they are set.
    pub io_priority: Option<(u8, u8)>,
    /// Records of devices that are not scrubbed.
    pub others: &'r [Record],
    pub total_bytes: u64,
    pub shows_progress: bool,
    pub found: &'r (dyn Fn(ScrubFinding) + Sync),
}

impl Scrubbing {
    fn scrub(&self, planned: &Planned, run: &Run<'_>) -> Ended {
        if let Some((class, priority)) = run.io_priority
            && let Err(error) = larder_ioctl::set_io_priority(class, priority)
        {
            eprintln!("WARNING: setting ioprio failed: {error}");
        }
        let devid = planned.devid;
        let (started, began) = (seconds_now(), Instant::now());
        let (progress, end) = match self {
            Self::Mounted(directory) => {
                let (progress, ended) =
                    larder_ioctl::scrub(directory, devid, planned.start, run.read_only);
                let end = match ended {
                    Ok(()) => End::Finished,
                    Err(error) => match Errno::from_io_error(&error) {
                        Some(Errno::CANCELED) => End::Cancelled,
                        Some(Errno::NODEV) => End::Missing,
                        Some(Errno::INPROGRESS) => {
                            End::Failed { problem: "it is being scrubbed".into() }
                        }
                        _ => End::Failed { problem: larder_platform::errno::in_words(&error) },
                    },
                };
                (progress, end)
            }
            Self::Image(filesystem) => {
                let options = ScrubOptions {
                    read_only: run.read_only,
                    start: planned.start,
                    found: Some(run.found),
                };
                match filesystem.scrub_device(devid, &options) {
                    Ok(scrub) => {
                        let end = match scrub.end {
                            ScrubEnd::Finished => End::Finished,
                            ScrubEnd::Cancelled => End::Cancelled,
                            ScrubEnd::NoDevice => End::Missing,
                            ScrubEnd::Failed(error) => End::Failed { problem: error.to_string() },
                        };
                        (scrub_progress(&scrub.counters), end)
                    }
                    Err(error) => {
                        let problem = error.to_string();
                        (ScrubProgress::new_zeroed(), End::Failed { problem })
                    }
                }
            }
        };
        Ended { devid, progress, started, duration: began.elapsed().as_secs(), end }
    }

    /// What the scrub of a device that goes on has met.
    fn progress(&self, devid: u64) -> Option<ScrubProgress> {
        match self {
            Self::Mounted(directory) => larder_ioctl::scrub_progress(directory, devid).ok()?,
            Self::Image(filesystem) => {
                filesystem.scrub_progress(devid).map(|now| scrub_progress(&now))
            }
        }
    }

    fn cancel(&self) {
        match self {
            // If none goes on any more, that is as well.
            Self::Mounted(directory) => drop(larder_ioctl::cancel_scrub(directory)),
            Self::Image(filesystem) => {
                let running = filesystem.jobs().running();
                let scrubs =
                    running.iter().filter(|job| matches!(job.kind(), JobKind::Scrub { .. }));
                scrubs.for_each(|job| job.cancel());
            }
        }
    }

    /// Runs the scrubs, and keeps their records. A signal cancels them.
    pub fn run(&self, planned: &[Planned], run: &Run<'_>) -> Vec<Ended> {
        let (began, now) = (Instant::now(), seconds_now());
        let left = AtomicUsize::new(planned.len());
        let done: Mutex<Vec<Ended>> = Mutex::default();
        record(run, &self.records(planned, &[], began, now));
        thread::scope(|scope| {
            for one in planned {
                let (left, done) = (&left, &done);
                scope.spawn(move || {
                    let ended = self.scrub(one, run);
                    done.lock().push(ended);
                    left.fetch_sub(1, Relaxed);
                });
            }
            let mut line = Progress::of_bytes();
            line.expect(run.total_bytes);
            let (mut recorded, mut is_cancelled) = (Instant::now(), false);
            while left.load(Relaxed) > 0 {
                thread::sleep(LOOKS);
                if !is_cancelled && interrupt::check().is_err() {
                    is_cancelled = true;
                    self.cancel();
                }
                if run.shows_progress {
                    let now = planned.iter().filter_map(|one| self.progress(one.devid));
                    line.set(now.map(|it| it.data_bytes_scrubbed + it.tree_bytes_scrubbed).sum());
                }
                if recorded.elapsed() >= RECORDED {
                    recorded = Instant::now();
                    record(run, &self.records(planned, &done.lock(), began, now));
                }
            }
        });
        let mut done = done.into_inner();
        done.sort_by_key(|ended| ended.devid);
        record(run, &self.records(planned, &done, began, now));
        done
    }

    fn records(
        &self,
        planned: &[Planned],
        done: &[Ended],
        began: Instant,
        now: u64,
    ) -> Vec<Record> {
        let record = |one: &Planned| {
            let ended = done.iter().find(|ended| ended.devid == one.devid);
            let running = || self.progress(one.devid).unwrap_or_else(ScrubProgress::new_zeroed);
            let progress = ended.map_or_else(running, |ended| ended.progress);
            let mut record = one.before;
            if record.started == 0 {
                record.started = now;
            } else {
                record.resumed = now;
            }
            record.duration += began.elapsed().as_secs();
            record.progress = sum(record.progress, progress);
            record.is_finished = ended.is_some_and(|it| matches!(it.end, End::Finished));
            record.is_cancelled = ended.is_some_and(|it| matches!(it.end, End::Cancelled));
            record
        };
        planned.iter().map(record).collect()
    }
}

fn record(run: &Run<'_>, records: &[Record]) {
    let mut all = [run.others, records].concat();
    all.sort_by_key(|record| record.devid);
    if let Err(error) = write(run.uuid, &all) {
        let problem = larder_platform::errno::in_words(&error);
        eprintln!("WARNING: the scrub cannot be recorded, and not be resumed: {problem}");
    }
}

/// Two parts of a scrub; the address is that of the later one.
pub fn sum(mut first: ScrubProgress, mut later: ScrubProgress) -> ScrubProgress {
    let address = if later.last_physical == 0 { first.last_physical } else { later.last_physical };
    for (_, counter) in COUNTERS {
        *counter(&mut first) += *counter(&mut later);
    }
    first.unverified_errors += later.unverified_errors;
    ScrubProgress { last_physical: address, ..first }
}

pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
