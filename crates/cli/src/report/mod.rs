//! Reports of the library while it serves a mount: on the terminal, and in the background to the
//! system's log.
//!
//! # Invariants
//! - A thread that reports something does not wait: one thread writes what all others report. The
//!   program that keeps the log may have its files on this very mount, and would wait for a server
//!   that waits for it.
//! - Reports for which the queue has no room are counted, and the log says how many they were.

mod journal;
mod panic;
mod queue;
mod sink;
mod syslog;
mod terminal;

use std::io;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::prelude::*;

pub use queue::Reporter;

use journal::Journal;
use sink::Sink;
use syslog::Syslog;
use terminal::Terminal;

/// How much is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Errors.
    Error,
    /// And warnings: bad copies that were repaired.
    Warn,
    /// And events: a log that was replayed.
    Info,
    /// And how the server works.
    Debug,
}

/// Makes reports go to the terminal until the result is dropped.
pub fn to_terminal(level: LogLevel) -> io::Result<Reporter> {
    start(level, vec![Box::new(Terminal)])
}

/// Makes reports of `work` in this thread go to the terminal.
pub fn on_terminal<T>(level: LogLevel, work: impl FnOnce() -> T) -> io::Result<T> {
    let (_reporter, layer) = Reporter::start(vec![Box::new(Terminal)])?;
    let subscriber = tracing_subscriber::registry().with(LevelFilter::from(level)).with(layer);
    Ok(tracing::subscriber::with_default(subscriber, work))
}

/// Makes reports go to journald, or if there is none to syslog, and to standard error as long as
/// that leads anywhere.
pub fn to_system_log(level: LogLevel) -> io::Result<Reporter> {
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(Terminal)];
    match Journal::connect() {
        Ok(journal) => sinks.push(Box::new(journal)),
        // It may begin to listen later.
        Err(_) => sinks.push(Box::new(Syslog::at(syslog::SOCKET))),
    }
    start(level, sinks)
}

fn start(level: LogLevel, sinks: Vec<Box<dyn Sink>>) -> io::Result<Reporter> {
    let (reporter, layer) = Reporter::start(sinks)?;
    let subscriber = tracing_subscriber::registry().with(LevelFilter::from(level)).with(layer);
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    panic::report();
    Ok(reporter)
}

impl LogLevel {
    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}
