//! Scrubbing in the background, in a process of its own.
//!
//! The command starts itself again and waits until that process has begun to scrub, or has failed
//! with an error on the standard error that both have.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::output::stdout;

/// Is set in the environment of the second process.
const SECOND: &str = "LARDER_SCRUBS_IN_BACKGROUND";

/// Whether this is the second process.
pub fn is_second() -> bool {
    env::var_os(SECOND).is_some()
}

/// Starts the second process. Returns its number once it scrubs, or the exit code if it has failed.
pub fn start() -> anyhow::Result<Result<u32, ExitCode>> {
    let program = env::current_exe().context("this program cannot find itself")?;
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    command.arg0(arguments.next().unwrap_or_default()).args(arguments).env(SECOND, "1");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    child.stdout.take().context("its output")?.read_to_string(&mut line)?;
    if !line.is_empty() {
        return Ok(Ok(child.id()));
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Err(ExitCode::from(code.max(1))))
}

/// Tells the first process that this one scrubs, and leaves its terminal.
pub fn say_begun() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut out = stdout();
    out.write_all(b"begun\n")?;
    out.flush()?;
    // It fails only for the leader of a group, which has nothing to leave.
    let _ = setsid();
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}
