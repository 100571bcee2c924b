//! Serving in the background: in a process of its own, which reports when it is ready.
//!
//! The command starts itself again with `--served` and waits. The second process mounts, writes one
//! line to its standard output, detaches from terminal and directory, and serves; an error before
//! that goes to the standard error that both have.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::output::stdout;
use crate::report::Reporter;

/// The environment of the second process, besides that of the first.
pub const SERVED: &str = "--served";

/// Runs this program again to serve, with `environment` besides its own, and waits until it does or
/// has failed.
pub fn start(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Vec<(&'static str, OsString)>,
) -> anyhow::Result<ExitCode> {
    let program = env::current_exe().context("this program cannot find itself")?;
    let mut command = Command::new(program);
    command.arg("mount").arg(SERVED).args(arguments).envs(environment);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("the process that serves")?;
    let mut line = String::new();
    child.stdout.take().context("its output")?.read_to_string(&mut line)?;
    if !line.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    // It has reported the error.
    let status = child.wait()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).max(1)))
}

/// Until it is ready, this process ends when the first is killed; a signal from the terminal
/// reaches both.
pub fn end_with_starter() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// Tells the first process that it is ready, and detaches from its caller.
pub fn say_ready(reporter: &Reporter) -> io::Result<()> {
    // Earlier reports are for the caller too.
    reporter.flush();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut out = stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    env::set_current_dir(Path::new("/"))?;
    set_parent_process_death_signal(None)?;
    // No signal of the terminal reaches this process any more. It fails only for the leader of a
    // group, which has nothing to leave.
    let _ = setsid();
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}
