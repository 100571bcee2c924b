//! Progress of long work: a line on a terminal, nothing in a pipe.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{is_error_terminal, stdout};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_secs(2);

const BYTES: &str = "{spinner} {bytes} ({bytes_per_sec})";
const BYTES_AND_LEFT: &str = "{spinner} {bytes} of {total_bytes} ({bytes_per_sec}, {eta} left)";
const FILES: &str = "{spinner} {pos} files";
const FILES_AND_LEFT: &str = "{spinner} {pos} of {len} files ({eta} left)";
const OBJECTS: &str = "{spinner} {pos} objects";
const OBJECTS_AND_LEFT: &str = "{spinner} {pos} of {len} objects ({eta} left)";
const STEPS: &str = "{msg} {pos}/{len} ({eta} left)";

/// A line on standard error, if that is a terminal. It appears once the work has taken two seconds.
pub struct Progress {
    bar: ProgressBar,
    /// The template once the total is known.
    with_total: &'static str,
    /// Where the total comes from.
    counted: Option<Receiver<u64>>,
    shown: bool,
}

impl Progress {
    /// For an unknown number of bytes.
    pub fn of_bytes() -> Self {
        Self::new(None, BYTES, BYTES_AND_LEFT)
    }

    /// For an unknown number of files.
    pub fn of_files() -> Self {
        Self::new(None, FILES, FILES_AND_LEFT)
    }

    /// For an unknown number of objects in a store.
    pub fn of_objects() -> Self {
        Self::new(None, OBJECTS, OBJECTS_AND_LEFT)
    }

    /// For a known number of steps.
    pub fn of_steps(total: u64) -> Self {
        Self::new(Some(total), STEPS, STEPS)
    }

    fn new(total: Option<u64>, template: &str, with_total: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Self { bar: bar.with_style(style(template)), with_total, counted: None, shown: false }
    }

    /// Gets the total from `count`, which runs in a thread of its own, but only if there is a
    /// terminal to show it on. If it is `None`, the total stays unknown.
    pub fn counting(mut self, count: impl FnOnce() -> Option<u64> + Send + 'static) -> Self {
        if is_error_terminal() {
            let (found, counted) = channel();
            thread::spawn(move || count().map(|total| found.send(total)));
            self.counted = Some(counted);
        }
        self
    }

    /// Sets what is being done and how much there is to do.
    pub fn start(&mut self, message: &str, total: u64) {
        self.bar.set_message(message.to_owned());
        self.bar.set_length(total);
    }

    /// Writes a line of its own to standard error.
    pub fn say(&self, message: &str) {
        self.bar.suspend(|| eprintln!("{message}"));
    }

    /// Writes a line of its own to standard output.
    pub fn print(&self, message: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(stdout(), "{message}"))
    }

    /// Sets how far the work has come.
    pub fn set(&mut self, position: u64) {
        if !self.shown && self.bar.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        if let Some(total) = self.counted.as_ref().and_then(|counted| counted.try_recv().ok()) {
            self.expect(total);
        }
        self.bar.set_position(position);
    }

    /// Adds to how far the work has come.
    pub fn add(&mut self, done: u64) {
        self.set(self.bar.position() + done);
    }

    /// Sets how far the work has come, and how much there is to do as far as is known.
    pub fn set_of(&mut self, position: u64, total: u64) {
        self.expect(total);
        self.set(position);
    }

    /// Sets how much there will be, as far as is known.
    pub fn expect(&mut self, total: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(style(self.with_total));
        }
        self.bar.set_length(total);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
