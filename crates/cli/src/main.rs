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
mod mode;
mod mode_change;
mod object_directory;
mod on_mount;
mod operand;
mod output;
mod owner;
mod pipeline;
mod place;
mod present;
mod prices;
mod print;
mod program;
mod progress;
mod reason;
mod report;
mod resync;
mod source;
mod target;
mod time_zone;
mod told;
mod tree;
mod umask;
mod units;
mod xattr_text;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use signal_hook::consts::{SIGPIPE, SIGXFSZ};

use self::interrupt::Interrupted;
use self::output::stdout;
use self::program::{Program, Stop};
use self::reason::in_words;

/// The system's allocator keeps memory that many threads have freed, several times as much as is in
/// use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = ignore_file_size_signal() {
        eprintln!("ERROR: {error}");
        return ExitCode::FAILURE;
    }
    let (program, arguments) = Program::called_as(env::args_os().collect());
    let command = match program.read(&arguments) {
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
            eprintln!("ERROR: standard output: {}", in_words(&error.to_string()));
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

/// An error and its causes, in words. A cause that the text before it already contains is left out.
///
/// A text that ends with a colon is an [image](source::on_image): a path in it follows at once.
fn message(error: &anyhow::Error) -> String {
    let text = error.chain().map(|cause| in_words(&cause.to_string())).fold(String::new(), joined);
    on_one_line(&text)
}

/// A name in a message may contain anything: characters that move the cursor or begin a line are
/// escaped.
fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_debug());
        } else {
            line.push(letter);
        }
    }
    line
}

fn joined(said: String, cause: String) -> String {
    let is_image = said.ends_with(':');
    let path = cause.split_once(": ").filter(|(path, _)| path.starts_with('/'));
    match path {
        _ if said.is_empty() || (is_image && cause.starts_with(&said)) => cause,
        _ if said.ends_with(&cause) => said,
        // The cause names the operand too.
        _ if cause.strip_prefix(&said).is_some_and(|rest| rest.starts_with(':')) => cause,
        _ if is_image && cause.starts_with('/') => said + &cause,
        _ if is_image => format!("{said} {cause}"),
        Some((path, rest)) if said.ends_with(path) => format!("{said}: {rest}"),
        _ => format!("{said}: {cause}"),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_messages_stay_on_their_line() {
        let error = anyhow::anyhow!("a\nb\u{1b}[2J: No such file or directory");
        assert_eq!(message(&error), "a\\nb\\u{1b}[2J: No such file or directory");
    }

    #[test]
    fn an_image_and_a_path_in_it_are_said_once() {
        let said = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            texts.fold(String::new(), joined)
        };
        assert_eq!(said(&["a.img:", "/f: File exists"]), "a.img:/f: File exists");
        assert_eq!(said(&["a.img:", "a.img:/f", "/f: File exists"]), "a.img:/f: File exists");
        assert_eq!(said(&["a.img:", "No space left"]), "a.img: No space left");
        assert_eq!(said(&["a.img:", "a.img: read failed"]), "a.img: read failed");
        assert_eq!(said(&["f", "x: no", "no"]), "f: x: no");
        assert_eq!(said(&["f", "f: no", "no"]), "f: no");
        assert_eq!(said(&["f", "f:/x: no"]), "f:/x: no");
        assert_eq!(said(&["f", "ff: no"]), "f: ff: no");
    }
}
