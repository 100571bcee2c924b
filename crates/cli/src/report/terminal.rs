//! Standard error.

use std::io;

use tracing::Level;

use super::sink::Sink;

pub(super) struct Terminal;

impl Sink for Terminal {
    fn write(&mut self, level: Level, text: &str) -> io::Result<()> {
        let word = match level {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            _ => "DEBUG",
        };
        eprintln!("{word}: {text}");
        Ok(())
    }
}
