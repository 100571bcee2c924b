//! The `larder` command: btrfs without the kernel.
//!
//! Each subcommand is a file of [`command`] with its arguments and a `run`; [`mod@print`] writes
//! on-disk structures as text. What a user of the library would want too is in the library.
#![forbid(unsafe_code)]
// In a program nothing is reachable from outside; `pub` still says what a module offers to others.
#![allow(unreachable_pub)]

/// As that of the standard library, but where standard error cannot be written to, nothing happens:
/// nobody could be told, and a panic helps nobody.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod command;
mod ending;
mod extract;
mod ingest;
mod mode;
mod mode_change;
mod pipeline;
mod print;
mod progress;
mod reason;
mod report;
mod source;
mod sparse;
mod tar_reader;
mod target;
mod transplant;
mod tree;
mod units;
mod untar;
mod xattr_text;

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use signal_hook::consts::SIGXFSZ;

use self::reason::in_words;

/// That of the system keeps what many threads have freed, several times as much as is in use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = ignore_file_size_signal() {
        eprintln!("ERROR: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = env::args_os().collect();
    let arguments = command::run_as_helper(&arguments).unwrap_or(arguments);
    let command = command::Larder::parse_from(arguments);
    match command.run() {
        Ok(code) => code,
        // Whoever reads our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ERROR: {}", message(&error));
            ExitCode::FAILURE
        }
    }
}

/// Has a write beyond the limit on the size of files end with an error, and not this process.
fn ignore_file_size_signal() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// An error and its causes, in words. A cause that the text before it already ends with is left out.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(|cause| in_words(&cause.to_string())).fold(String::new(), |text, cause| {
        match text.as_str() {
            "" => cause,
            said if said.ends_with(&cause) => text,
            said => format!("{said}: {cause}"),
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
