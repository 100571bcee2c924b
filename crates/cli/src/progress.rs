//! Progress of long work: a line on a terminal, nothing in a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_secs(2);

/// A line on standard error, if that is a terminal, which appears once the work has taken two seconds.
pub struct Progress {
    bar: ProgressBar,
    shown: bool,
}

impl Progress {
    /// Of bytes of which nobody knows how many there will be.
    pub fn of_bytes() -> Self {
        Self::new(None, "{spinner} {bytes} ({bytes_per_sec})")
    }

    /// Of a known number of steps.
    pub fn of_steps(total: u64) -> Self {
        Self::new(Some(total), "{msg} {pos}/{len} ({eta} left)")
    }

    fn new(total: Option<u64>, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("a valid template");
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Self { bar: bar.with_style(style), shown: false }
    }

    /// Says what is being done and how much there is to do.
    pub fn start(&mut self, message: &str, total: u64) {
        self.bar.set_message(message.to_owned());
        self.bar.set_length(total);
    }

    /// Says something in a line of its own on standard error.
    pub fn say(&self, message: &str) {
        self.bar.suspend(|| eprintln!("{message}"));
    }

    /// Says how far the work has come.
    pub fn set(&mut self, position: u64) {
        if !self.shown && self.bar.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
