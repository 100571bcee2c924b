//! The programs that this one can be called as: `larder`, and those of btrfs-progs.
//!
//! The name of the program decides, so a link is enough. Called by a name of btrfs-progs, it reads
//! the command line and ends as that program does; what it does is what `larder` does.

mod fsck;
mod missing;
mod text_only;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches};

use crate::command::{HELPER_NAMES, Larder, run_as_helper};

/// The program that this process was called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Larder,
    /// `btrfs`, and `btrfsck`, which is `btrfs check`.
    Btrfs,
    /// `mkfs.btrfs`: one command of `larder`, without the word for it.
    Mkfs,
    /// `fsck.btrfs`.
    Fsck,
    /// A program that only says that it is missing.
    Missing(&'static str),
}

/// All names except `larder`.
const NAMES: [(&str, Program); 8] = [
    ("btrfs", Program::Btrfs),
    ("btrfsck", Program::Btrfs),
    ("mkfs.btrfs", Program::Mkfs),
    ("fsck.btrfs", Program::Fsck),
    ("btrfstune", Program::Missing("btrfstune")),
    ("btrfs-image", Program::Missing("btrfs-image")),
    ("btrfs-map-logical", Program::Missing("btrfs-map-logical")),
    ("btrfs-find-root", Program::Missing("btrfs-find-root")),
];

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

/// After the names of the programs, the release of btrfs-progs that they follow, which scripts look
/// for.
const BTRFS_VERSION: &str = concat!("v6.2\nlarder ", env!("CARGO_PKG_VERSION"));
const MKFS_VERSION: &str = concat!("part of btrfs-progs v6.2\nlarder ", env!("CARGO_PKG_VERSION"));

/// The exit code of btrfs for an option that it does not know, before the command.
const UNKNOWN_GLOBAL_OPTION: u8 = 129;

impl Program {
    /// The names that a link can have, of those programs that do their work.
    pub fn linked_names() -> impl Iterator<Item = &'static str> {
        let working = NAMES.into_iter().filter(|(_, program)| !matches!(program, Self::Missing(_)));
        working.map(|(name, _)| name).chain(HELPER_NAMES)
    }

    /// The program that the first of `arguments` names, and the command line that it reads.
    pub fn called_as(arguments: Vec<OsString>) -> (Self, Vec<OsString>) {
        if let Some(translated) = run_as_helper(&arguments) {
            return (Self::Larder, translated);
        }
        let path = arguments.first().map(Path::new);
        let name = path.and_then(Path::file_name).and_then(|name| name.to_str());
        let called = NAMES.into_iter().find(|(known, _)| Some(*known) == name);
        let (name, program) = called.unwrap_or(("larder", Self::Larder));
        match name {
            "btrfsck" => {
                let words = ["btrfs".into(), "check".into()].into_iter();
                (program, words.chain(arguments.into_iter().skip(1)).collect())
            }
            _ => (program, arguments),
        }
    }

    /// Reads the command line.
    pub fn read(self, arguments: &[OsString]) -> Result<Larder, Stop> {
        match self {
            Self::Missing(name) => {
                return Err(Stop::Missing(missing::sentence(name, missing::OF_PROGS)));
            }
            Self::Fsck => return Err(Stop::Done(fsck::run(&arguments[1..]))),
            Self::Larder | Self::Btrfs | Self::Mkfs => {}
        }
        let arguments = words::without_end_of_help(arguments);
        let arguments = &match self {
            Self::Larder => words::without_synonym(&arguments),
            _ => arguments,
        };
        let command = self.command();
        // Whatever else is wrong, a command or a format that is missing is the reason.
        let partly = command.clone().ignore_errors(true).try_get_matches_from(arguments);
        let name = command.get_name().to_owned();
        let missing = |read| missing::asked(&name, read).or_else(|| text_only::asked(read));
        if let Some(sentence) = partly.as_ref().ok().and_then(missing) {
            return Err(Stop::Missing(sentence));
        }
        let read = command.clone().try_get_matches_from(arguments).and_then(|read| match self {
            Self::Mkfs => Larder::mkfs(&read),
            _ => Larder::from_arg_matches(&read),
        });
        read.map_err(|usage| {
            let usage = words::without_hidden(usage, &command);
            let has_no_command =
                usage.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            if has_no_command && self != Self::Larder {
                return Stop::NoCommand(usage.to_string());
            }
            let is_before_command = partly.is_ok_and(|read| read.subcommand_name().is_none());
            let code = self.usage_code(&usage, is_before_command);
            Stop::Usage(Box::new(usage), code)
        })
    }

    /// Everything that the command line can be.
    pub fn command(self) -> Command {
        let command = missing::added_to(Larder::command());
        match self {
            Self::Btrfs => with_examples_of(command, "larder", "btrfs")
                .name("btrfs")
                .display_name("btrfs-progs")
                .version(BTRFS_VERSION)
                .long_version(BTRFS_VERSION),
            Self::Mkfs => {
                let mkfs = command.find_subcommand("mkfs").expect("it is a command").clone();
                with_examples_of(mkfs, "larder mkfs", "mkfs.btrfs")
                    .name("mkfs.btrfs")
                    .display_name("mkfs.btrfs,")
                    .version(MKFS_VERSION)
                    .infer_long_args(true)
                    .args_override_self(true)
            }
            Self::Larder | Self::Fsck | Self::Missing(_) => command,
        }
    }

    /// The exit code of a command that could not begin.
    pub fn failure_code(self) -> u8 {
        if self == Self::Larder { 2 } else { 1 }
    }

    fn usage_code(self, usage: &clap::Error, is_before_command: bool) -> ExitCode {
        let is_unknown = usage.kind() == ErrorKind::UnknownArgument && is_before_command;
        ExitCode::from(match usage.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
            _ if is_unknown && self == Self::Btrfs => UNKNOWN_GLOBAL_OPTION,
            _ => self.failure_code(),
        })
    }
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
