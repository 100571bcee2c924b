//! Programs that the server runs.

use std::io;
use std::process::{Command, Stdio};

use larder_platform::errno::in_words;

/// Runs a program. The error is what it wrote to standard error.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let output =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).output().map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("{program} cannot be run: {}", in_words(&error)))
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
