//! Checks with a progress line, of images and of kept states.

use std::sync::{Mutex, PoisonError};

use anyhow::anyhow;
use larder::device::KeptState;
use larder_check::{Options, Progress as Checked, Report, Stopped};
use larder_volume::Volume;

use crate::kept::unless_ended;
use crate::progress::Progress;

/// What to check, and how.
pub struct Checking {
    /// All data too.
    pub data: bool,
    /// Threads to use; 0 for as many as there are processors.
    pub threads: usize,
    /// Whether to show no progress.
    pub quiet: bool,
}

impl Checking {
    /// Checks `volume`. Stops at the end of the kept state that it reads, if it reads one.
    pub fn check(&self, volume: &Volume, kept: Option<&KeptState>) -> anyhow::Result<Report> {
        let progress = Mutex::new((Progress::of_steps(0), None));
        let show = |now: Checked| {
            if !self.quiet {
                let mut guard = progress.lock().unwrap_or_else(PoisonError::into_inner);
                let (line, phase) = &mut *guard;
                if phase.replace(now.phase) != Some(now.phase) {
                    line.start(&now.phase.to_string(), now.total_bytes);
                }
                line.set(now.done_bytes);
            }
            unless_ended(kept)
        };
        let options = Options {
            check_data_csum: self.data,
            threads: self.threads,
            progress: Some(&show),
            ..Options::default()
        };
        larder_check::check(volume, &options).map_err(|Stopped| anyhow!("the check was stopped"))
    }
}
