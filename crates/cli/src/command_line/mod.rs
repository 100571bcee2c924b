//! Reading the command line, as `larder` or as a program of btrfs-progs.

mod fsck;
mod missing;
mod text_only;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches};

use crate::command::Larder;
use crate::outcome::UNKNOWN_GLOBAL_OPTION;
use crate::program::Program;

/// A command line to run no command for.
#[derive(Debug)]
pub enum Stop {
    /// Help was asked for, or the command line is wrong.
    Usage(Box<clap::Error>, ExitCode),
    /// It asks for something that larder does not have; a sentence says so.
    Missing(String),
    /// The command line ends before a command, where btrfs prints help as a result.
    NoCommand(String),
    /// Everything is said.
    Done(ExitCode),
}

/// Reads the command line.
pub fn read(program: Program, arguments: &[OsString]) -> Result<Larder, Stop> {
    match program {
        Program::Missing(name) => {
            return Err(Stop::Missing(missing::sentence(name, missing::OF_PROGS)));
        }
        Program::Fsck => return Err(Stop::Done(fsck::run(&arguments[1..]))),
        Program::Larder | Program::Btrfs | Program::Mkfs => {}
    }
    let arguments = words::with_filters_apart(&words::without_end_of_help(arguments));
    let arguments = &match program {
        Program::Larder => words::without_synonym(&arguments),
        _ => arguments,
    };
    let command = command(program);
    // Whatever else is wrong, a command or a format that is missing is the reason.
    let partly = command.clone().ignore_errors(true).try_get_matches_from(arguments);
    let name = command.get_name().to_owned();
    let missing = |read| missing::asked(&name, read).or_else(|| text_only::asked(read));
    if let Some(sentence) = partly.as_ref().ok().and_then(missing) {
        return Err(Stop::Missing(sentence));
    }
    let read = command.clone().try_get_matches_from(arguments).and_then(|read| match program {
        Program::Mkfs => Larder::mkfs(&read),
        _ => Larder::from_arg_matches(&read),
    });
    read.map_err(|usage| {
        let usage = words::without_hidden(usage, &command);
        let has_no_command = usage.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if has_no_command && program != Program::Larder {
            return Stop::NoCommand(usage.to_string());
        }
        let is_before_command = partly.is_ok_and(|read| read.subcommand_name().is_none());
        let code = usage_code(program, &usage, is_before_command);
        Stop::Usage(Box::new(usage), code)
    })
}

/// Everything that the command line can be.
pub fn command(program: Program) -> Command {
    let command = missing::added_to(Larder::command());
    match program {
        Program::Btrfs => with_examples_of(command, "larder", "btrfs")
            .name("btrfs")
            .display_name(program.display_name())
            .version(program.version())
            .long_version(program.version()),
        Program::Mkfs => {
            let mkfs = command.find_subcommand("mkfs").expect("it is a command").clone();
            with_examples_of(mkfs, "larder mkfs", "mkfs.btrfs")
                .name("mkfs.btrfs")
                .display_name(program.display_name())
                .version(program.version())
                .infer_long_args(true)
                .args_override_self(true)
        }
        Program::Larder | Program::Fsck | Program::Missing(_) => command,
    }
}

fn usage_code(program: Program, usage: &clap::Error, is_before_command: bool) -> ExitCode {
    let is_unknown = usage.kind() == ErrorKind::UnknownArgument && is_before_command;
    ExitCode::from(match usage.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ if is_unknown && program == Program::Btrfs => UNKNOWN_GLOBAL_OPTION,
        _ => program.failure_code(),
    })
}

/// Examples in the help texts call this program by the name `to`.
fn with_examples_of(command: Command, from: &str, to: &str) -> Command {
    let renamed = |text: &clap::builder::StyledStr| {
        let text = text.to_string();
        let names = |before: &str| (format!("{before}{from} "), format!("{before}{to} "));
        ["  ", "Example: ", "| "]
            .into_iter()
            .map(names)
            .fold(text, |text, (from, to)| text.replace(&from, &to))
    };
    let command = match command.get_long_about().map(renamed) {
        Some(text) => command.long_about(text),
        None => command,
    };
    command.mut_subcommands(|below| with_examples_of(below, from, to))
}
