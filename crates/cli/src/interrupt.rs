//! Signals that ask this process to end while some output is incomplete.
//!
//! - A signal that was ignored when this process was started stays ignored.
//! - Interrupted work says so, and the process ends by the signal, as others do.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// The signal that came first, or zero.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// timeout(1) sends a signal to a process and once more to its group. Signals that arrive within this
/// time after the first one are the same signal.
const REPEATED_WITHIN: Duration = Duration::from_millis(300);

/// The signals that ask this process to end, except those that were ignored when it started.
pub fn heeded() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGINT, SIGTERM, SIGHUP];
    all.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// From now on signals only make [`check`] fail. A later second one ends the process at once: the
/// event that the work waits for may never come.
pub fn watch() -> io::Result<()> {
    let mut signals = Signals::new(heeded())?;
    thread::spawn(move || {
        let Some(first) = signals.forever().next() else { return };
        ARRIVED.store(first, Ordering::Relaxed);
        let since = Instant::now();
        let mut later = signals.forever().skip_while(|_| since.elapsed() < REPEATED_WITHIN);
        if let Some(second) = later.next() {
            Interrupted(second).end_process();
        }
    });
    Ok(())
}

/// Fails once a signal has come.
pub fn check() -> Result<(), Interrupted> {
    match ARRIVED.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Interrupted(signal)),
    }
}

/// Work ended early because of this signal.
#[derive(Clone, Debug)]
pub struct Interrupted(i32);

impl Interrupted {
    /// The interruption in `error`, if there is one.
    pub fn behind(error: &anyhow::Error) -> Option<&Self> {
        error.chain().find_map(|cause| cause.downcast_ref())
    }

    /// Ends this process by the signal.
    pub fn end_process(&self) {
        let _ = signal_hook::low_level::emulate_default_handler(self.0);
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; part of the work may be done")
    }
}

impl Error for Interrupted {}

/// Files that are being created. Unless they are [kept](Self::keep), they are removed, also if a
/// signal ends the process meanwhile; after that nothing is kept any more.
pub struct HalfMade {
    files: Arc<Mutex<Files>>,
    signals: Handle,
}

struct Files(Vec<PathBuf>);

impl HalfMade {
    /// Those of `paths` that do not exist yet.
    pub fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let made = paths.iter().filter(|path| path.symlink_metadata().is_err()).cloned();
        let files = Arc::new(Mutex::new(Files(made.collect())));
        let mut signals = Signals::new(heeded())?;
        let half_made = Self { files: files.clone(), signals: signals.handle() };
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Locked until the process ends.
                let mut files = lock(&files);
                let interrupted = Interrupted(signal);
                let removed = files.remove();
                eprintln!("ERROR: {interrupted}");
                for path in removed {
                    eprintln!("{} was removed", path.display());
                }
                interrupted.end_process();
            }
        });
        Ok(half_made)
    }

    /// They are complete, and stay.
    pub fn keep(self) {
        lock(&self.files).0.clear();
    }
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        lock(&self.files).remove();
        self.signals.close();
    }
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// Removes existing ones; returns which.
    fn remove(&mut self) -> Vec<PathBuf> {
        self.0.drain(..).filter(|path| fs::remove_file(path).is_ok()).collect()
    }
}
