//! Running the programs of the oracle.

use std::ffi::OsStr;
use std::process::Command;

/// A program that could not be run or did not succeed, with its output.
#[derive(Debug, thiserror::Error)]
#[error("`{line}` {outcome}\n{stdout}{stderr}")]
pub struct CommandError {
    /// The command as it would be typed.
    pub line: String,
    /// The exit status, or why the program did not start.
    pub outcome: String,
    /// The exit code, if the program ran and was not killed.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs `program` with `arguments` and returns its standard output.
///
/// Bytes that are not UTF-8 are replaced. An exit code other than 0 is an error. The locale is
/// fixed, so that output can be compared.
pub fn run<I, S>(program: &str, arguments: I) -> Result<String, CommandError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").env("TZ", "UTC");
    let output = command.output().map_err(|error| CommandError {
        line: command_line(&command),
        outcome: format!("did not start: {error}"),
        code: None,
        stdout: String::new(),
        stderr: String::new(),
    })?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    Err(CommandError {
        line: command_line(&command),
        outcome: format!("ended with {}", output.status),
        code: output.status.code(),
        stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
