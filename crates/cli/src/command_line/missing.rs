//! What btrfs-progs has and larder does not: each command and option says so when it is used.
//!
//! They are part of the command line, but no help and no completion shows them.

use clap::{Arg, ArgAction, ArgMatches, Command};

/// A command, or a group of commands with all that is below it; with another way.
struct Missing {
    path: &'static str,
    way_out: &'static str,
}

const fn instead(path: &'static str, way_out: &'static str) -> Missing {
    Missing { path, way_out }
}

/// The way out if a whole program is missing.
pub const OF_PROGS: &str =
    "that of btrfs-progs works on the same images, while they are not mounted";

const BY_COPYING: &str =
    "'larder check --repair' repairs damage, and 'larder restore' copies what can be read";

const COMMANDS: &[Missing] = &[
    instead("filesystem defragment", "'cp --reflink=never' makes a copy in few pieces"),
    instead(
        "qgroup",
        "'larder report' and 'filesystem du' say what subvolumes hold, without quotas",
    ),
    instead(
        "quota",
        "'larder report' and 'filesystem du' say what subvolumes hold, without quotas",
    ),
    instead("rescue clear-ino-cache", BY_COPYING),
    instead("rescue create-control-device", "'mknod /dev/btrfs-control c 10 234' makes it"),
];

/// An option of a command that larder has, as btrfs-progs lists it, and why larder has none.
struct Refused {
    path: &'static str,
    option: &'static str,
    reason: &'static str,
}

const fn refused(path: &'static str, option: &'static str, reason: &'static str) -> Refused {
    Refused { path, option, reason }
}

const NO_CACHE: &str = "no kernel has used that cache since 2021";
const NO_QUOTA: &str = "quota groups cannot be changed yet";
const ROOTS: &str =
    "'larder rescue find-roots' lists the roots that are left, and IMAGE@GENERATION chooses one";
const ONE_START: &str = "check starts at the roots in a superblock, which --super chooses";

const OPTIONS: &[Refused] = &[
    refused("check", "-b|--backup", ONE_START),
    refused("check", "-r|--tree-root ADDRESS", ONE_START),
    refused("check", "--chunk-root ADDRESS", ONE_START),
    refused("check", "--clear-ino-cache", NO_CACHE),
    refused("check", "-Q|--qgroup-report", "there is no report about quota groups"),
    refused(
        "check",
        "-E|--subvol-extents ID",
        "'larder report' says what subvolumes share, and hold alone",
    ),
    refused("mkfs", "-l|--leafsize SIZE", "--nodesize is its name"),
    refused("mkfs", "--reflink", "files are copied, never shared with the source"),
    refused("restore", "-d", "every directory that is left is found"),
    refused("restore", "-f ADDRESS", "IMAGE@GENERATION chooses a state with all of its trees"),
    refused("restore", "-l|--list-roots", ROOTS),
    refused("restore", "-t ADDRESS", ROOTS),
    refused("restore", "-u|--super MIRROR", "the newest sound superblock of all copies is taken"),
    refused("subvolume create", "-i QGROUP", NO_QUOTA),
    refused("subvolume snapshot", "-i QGROUP", NO_QUOTA),
];

/// `command`, the whole of larder, with everything that is missing.
pub fn added_to(command: Command) -> Command {
    let command = COMMANDS.iter().fold(command, |command, missing| {
        let (group, name) = missing.path.rsplit_once(' ').unwrap_or(("", missing.path));
        let rest = Arg::new("rest").num_args(0..).allow_hyphen_values(true);
        let below = Command::new(name)
            .hide(true)
            .disable_help_flag(true)
            .arg(rest.trailing_var_arg(true).value_parser(clap::value_parser!(std::ffi::OsString)));
        at(command, group, |group| group.subcommand(below))
    });
    OPTIONS.iter().fold(command, |command, refused| {
        at(command, refused.path, |command| command.arg(refused.argument()))
    })
}

/// Changes the command at `path` below `command`.
fn at(command: Command, path: &str, change: impl FnOnce(Command) -> Command) -> Command {
    let (first, rest) = path.split_once(' ').unwrap_or((path, ""));
    if first.is_empty() {
        return change(command);
    }
    command.mut_subcommand(first, |below| at(below, rest, change))
}

impl Refused {
    fn argument(&self) -> Arg {
        let (names, value) = self.option.split_once(' ').unwrap_or((self.option, ""));
        let argument = names.split('|').fold(Arg::new(self.option).hide(true), |argument, name| {
            match name.strip_prefix("--") {
                Some(long) => argument.long(long),
                None => argument.short(name.chars().nth(1)),
            }
        });
        match value {
            "" => argument.action(ArgAction::Count),
            _ => argument.num_args(0..=1).action(ArgAction::Append),
        }
    }
}

/// A sentence about what is missing, if the command line of the program `name` asks for such.
pub fn asked(name: &str, read: &ArgMatches) -> Option<String> {
    // The command line of mkfs.btrfs is that of one command.
    let mut path = if name == "mkfs.btrfs" { "mkfs".to_owned() } else { String::new() };
    let mut shown = name.to_owned();
    let mut read = read;
    while let Some((below, matches)) = read.subcommand() {
        path = if path.is_empty() { below.to_owned() } else { format!("{path} {below}") };
        shown = format!("{shown} {below}");
        if let Some(missing) = COMMANDS.iter().find(|missing| missing.path == path) {
            return Some(sentence(&shown, missing.way_out));
        }
        read = matches;
    }
    let is_given = |refused: &&Refused| {
        read.value_source(refused.option) == Some(clap::parser::ValueSource::CommandLine)
    };
    let refused = OPTIONS.iter().filter(|refused| refused.path == path).find(is_given)?;
    let (names, _) = refused.option.split_once(' ').unwrap_or((refused.option, ""));
    Some(format!("{shown}: no option {}: {}", names.replace('|', ", "), refused.reason))
}

/// The sentence about a command or program that is missing.
pub fn sentence(shown: &str, way_out: &str) -> String {
    format!("{shown}: larder cannot do this yet; {way_out}")
}
