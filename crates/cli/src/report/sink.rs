//! Where reports go.

use std::io;

use tracing::Level;

/// The signature of reports.
pub(super) const IDENTIFIER: &str = "larder";

/// A destination of reports.
pub(super) trait Sink: Send {
    fn write(&mut self, level: Level, text: &str) -> io::Result<()>;
}
