//! The `larder` command: btrfs without the kernel.
//!
//! Each subcommand is a file of [`command`] with its arguments and a `run`; [`mod@print`] writes
//! on-disk structures as text. Code that a user of the library would want too is in the library.
//!
//! # Invariants
//! - Output that scripts read is that of btrfs-progs, to the byte; `docs/commands.md` lists the
//!   exceptions.
//! - Nothing from an image is trusted on the way to the host: names are checked, and files are
//!   created relative to descriptors of directories, without following links.
//! - Standard output is for results, standard error for everything else.
//! - umount(2) may return before a server's last commit: each command waits for a server whose
//!   mount has ended ([`ending`]).
//! - What the library reports goes to the terminal, or from the background to journald or syslog
//!   ([`report`]). One thread writes it, and no thread of a server waits for the reader.
//! - A command that a signal interrupts ends by that signal, and leaves an image that needs no
//!   repair.
#![forbid(unsafe_code)]
// In a program nothing is reachable from outside; `pub` still says what a module offers to others.
#![allow(unreachable_pub)]

/// Like that of the standard library, but by [`output::say`].
macro_rules! eprintln {
    ($($words:tt)*) => {
        crate::output::say(format_args!("{}\n", format_args!($($words)*)))
    };
}

mod accounted;
mod checking;
mod command;
mod command_line;
mod completion;
mod copying;
mod device_errors;
mod devices;
mod ending;
mod global;
mod ingest;
mod interrupt;
mod kept;
mod manual;
mod message;
mod mode;
mod mode_change;
mod mounted_device;
mod objects;
mod on_mount;
mod operand;
mod outcome;
mod output;
mod owner;
mod pipeline;
mod place;
mod present;
mod print;
mod program;
mod progress;
mod repairing;
mod report;
mod resync;
mod source;
mod space;
mod state;
mod target;
mod time_zone;
mod told;
mod tree;
mod umask;
mod units;
mod volume;
mod xattr_text;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use larder_platform::errno::in_words;
use signal_hook::consts::{SIGPIPE, SIGXFSZ};

use self::command_line::Stop;
use self::interrupt::Interrupted;
use self::message::{is_broken_pipe, message};
use self::output::stdout;
use self::program::Program;

/// The system's allocator keeps memory that many threads have freed, several times as much as is in
/// use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = ignore_file_size_signal() {
        eprintln!("ERROR: {}", in_words(&error));
        return ExitCode::FAILURE;
    }
    let (program, arguments) = Program::called_as(env::args_os().collect());
    let command = match command_line::read(program, &arguments) {
        Ok(command) => command,
        Err(stop) => return explain(stop),
    };
    match command.run(program).and_then(|code| Ok(stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => end_by_broken_pipe(),
        Err(error) => {
            eprintln!("ERROR: {}", message(&error));
            if let Some(interrupted) = Interrupted::behind(&error) {
                interrupted.end_process();
            }
            ExitCode::FAILURE
        }
    }
}

/// Shows the requested help, or the reason why no command runs.
fn explain(stop: Stop) -> ExitCode {
    let (usage, code) = match stop {
        Stop::Usage(usage, code) => (usage, code),
        Stop::Done(code) => return code,
        Stop::NoCommand(help) => {
            let _ = write!(stdout(), "{help}");
            return ExitCode::FAILURE;
        }
        Stop::Missing(sentence) => {
            eprintln!("ERROR: {sentence}");
            return ExitCode::FAILURE;
        }
    };
    match usage.print() {
        Err(error) if !usage.use_stderr() => {
            eprintln!("ERROR: standard output: {}", in_words(&error));
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// Ends as a program does that the system stops when the reader of its output has gone.
fn end_by_broken_pipe() -> ExitCode {
    let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    ExitCode::FAILURE
}

/// Makes a write beyond the limit on the size of files fail, instead of ending this process.
fn ignore_file_size_signal() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}
