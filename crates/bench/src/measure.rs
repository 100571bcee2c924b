//! Running a program and measuring it from outside.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How often the memory of a program is sampled. The kernel keeps the peak, so only growth in the
/// last interval of its life can be missed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Wall clock time.
    pub elapsed: Duration,
    /// Peak resident memory in bytes.
    pub peak_bytes: u64,
}

impl Run {
    /// Work in this process; its memory is that of the whole process.
    pub fn in_process(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let start = Instant::now();
        work()?;
        Ok(Self { elapsed: start.elapsed(), peak_bytes: 0 })
    }

    /// A program whose output is discarded and which must succeed.
    pub fn of<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let status_file = format!("/proc/{}/status", child.id());
        let mut peak_bytes = 0;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            peak_bytes = resident_peak(&status_file).unwrap_or(0).max(peak_bytes);
            thread::sleep(SAMPLE_INTERVAL);
        };
        if !status.success() {
            bail!("{command:?} failed: {status}");
        }
        Ok(Self { elapsed: start.elapsed(), peak_bytes })
    }
}

/// Peak resident memory of this process so far, in bytes.
pub fn own_peak_bytes() -> u64 {
    resident_peak("/proc/self/status").unwrap_or(0)
}

/// Processor time of all threads of this process so far.
pub fn own_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `VmHWM` of a process, in bytes.
fn resident_peak(status_file: &str) -> Option<u64> {
    let status = fs::read_to_string(status_file).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Writes back dirty pages and drops clean ones, so that the next run starts cold.
pub fn drop_caches() -> anyhow::Result<()> {
    Command::new("sync").status()?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches; needs root")
}
