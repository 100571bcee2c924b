//! The progress of a stream.

use std::io::{self, Write};
use std::sync::Arc;

use larder::SendProgress;

use crate::progress::Progress;

/// With fewer millionths of the whole, an estimate of the remaining time is worthless.
const ENOUGH_TO_TELL: u64 = 1000;

/// A stream that passes by on its way to the output, and is counted.
pub struct Passing<'a> {
    output: &'a mut dyn Write,
    pub passed_bytes: u64,
    line: Progress,
    progress: Arc<SendProgress>,
}

impl<'a> Passing<'a> {
    pub fn new(output: &'a mut dyn Write, progress: Arc<SendProgress>) -> Self {
        Self { output, passed_bytes: 0, line: Progress::of_bytes(), progress }
    }
}

impl Write for Passing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.output.write(bytes)?;
        self.passed_bytes += len as u64;
        let millionths = u64::from(self.progress.millionths());
        if millionths >= ENOUGH_TO_TELL {
            self.line.expect(self.passed_bytes.saturating_mul(1_000_000) / millionths);
        }
        self.line.set(self.passed_bytes);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
