//! The command tree. Names follow btrfs-progs, and unambiguous prefixes are accepted.
//!
//! An interrupted command ends by the signal, as other programs do (a shell calls that 130 for
//! Ctrl-C, 143 for TERM): the image is in the state of some commit, and needs no repair.

mod balance;
mod cat;
mod check;
mod chmod;
mod chown;
mod completions;
mod cp;
mod device;
mod du;
mod enqueue;
mod export;
mod filesystem;
mod getfattr;
mod health;
mod image;
mod import;
mod inspect;
mod install_links;
mod ln;
mod ls;
mod man_pages;
mod mkdir;
mod mkfs;
mod mount;
mod mv;
mod objects;
mod property;
mod receive;
mod reflink;
mod replace;
mod report;
mod rescue;
mod restore;
mod rm;
mod scrub;
mod send;
mod setfattr;
mod stat;
mod streams;
mod subvolume;
mod tar;
mod touch;
mod truncate;
mod umount;
mod version;
mod write;

use std::env;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::global::Global;
use crate::outcome::Outcome;
use crate::program::{LARDER_VERSION, Program};
use crate::report::{LogLevel, to_terminal};

/// Mount, read, change, make and check btrfs file systems without kernel btrfs and without root.
///
/// Most commands work on a file system that is not mounted: IMAGE:/PATH is a path in the one on an
/// image file or block device. IMAGE@GENERATION:/PATH is one in an earlier state, which is only
/// read: larder rescue find-roots lists them. The --help of each command has its usage and examples.
///
/// Exit codes:
///   0  success
///   1  failure
///   2  the command line is wrong
/// Commands with other exit codes name them in their --help.
///
/// Examples:
///   larder mount --create 8G disk.img ~/mnt
///   larder umount ~/mnt
///   larder ls -l disk.img:/
#[derive(Debug, Parser)]
#[command(
    name = "larder",
    verbatim_doc_comment,
    version,
    long_version = LARDER_VERSION,
    infer_subcommands = true,
    infer_long_args = true,
    args_override_self = true
)]
pub struct Larder {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand, aliases = ["b", "ba", "bal"])]
    Balance(balance::Balance),
    Cat(cat::Cat),
    #[command(aliases = ["c", "ch"])]
    Check(check::Check),
    Chmod(chmod::Chmod),
    Chown(chown::Chown),
    #[command(name = "__complete", hide = true)]
    Complete(completions::Complete),
    Completions(completions::Completions),
    Cp(cp::Cp),
    #[command(subcommand, alias = "d")]
    Device(device::Device),
    Du(du::Du),
    Export(export::Export),
    #[command(subcommand)]
    Filesystem(filesystem::Filesystem),
    Getfattr(getfattr::Getfattr),
    Health(health::Health),
    #[command(subcommand)]
    Image(image::Image),
    Import(import::Import),
    #[command(subcommand, visible_alias = "inspect-internal", aliases = ["i", "in", "ins"])]
    Inspect(inspect::Inspect),
    InstallLinks(install_links::InstallLinks),
    Ln(ln::Ln),
    Ls(ls::Ls),
    ManPages(man_pages::ManPages),
    Mkdir(mkdir::Mkdir),
    Mkfs(Box<mkfs::Mkfs>),
    Mount(mount::Mount),
    Mv(mv::Mv),
    #[command(subcommand)]
    Objects(objects::Objects),
    #[command(subcommand)]
    Property(property::Property),
    Receive(receive::Receive),
    Reflink(reflink::Reflink),
    // Not one of `report`, which btrfs-progs does not have.
    #[command(subcommand, alias = "rep")]
    Replace(replace::Replace),
    Report(report::Report),
    #[command(subcommand)]
    Rescue(rescue::Rescue),
    Restore(Box<restore::Restore>),
    Rm(rm::Rm),
    #[command(subcommand)]
    Scrub(scrub::Scrub),
    #[command(alias = "se")]
    Send(Box<send::Send>),
    Setfattr(setfattr::Setfattr),
    #[command(alias = "st")]
    Stat(stat::Stat),
    #[command(subcommand)]
    Streams(streams::Streams),
    #[command(subcommand)]
    Subvolume(subvolume::Subvolume),
    Tar(tar::Tar),
    Touch(touch::Touch),
    Truncate(truncate::Truncate),
    Umount(umount::Umount),
    /// Show the version, as --version does
    ///
    /// Example: larder version | grep commit
    Version,
    Write(write::Write),
}

impl Larder {
    /// The command line of `mkfs.btrfs`.
    pub fn mkfs(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let global = Global::default();
        let command = Command::Mkfs(Box::new(mkfs::Mkfs::from_arg_matches(matches)?));
        Ok(Self { global, command })
    }

    /// Runs the command line.
    pub fn run(self, program: Program) -> Outcome {
        let Self { global, command } = self;
        // A command that waits for a network says so while it waits. A mount has reports of its own.
        let has_url = || env::args_os().any(|argument| larder_objects::is_url(&argument));
        let is_told = !matches!(command, Command::Mount(_)) && has_url();
        let _reporter = is_told.then(|| to_terminal(LogLevel::Warn)).transpose()?;
        let outcome = command.run(&global, program);
        if global.stats {
            let mut text = Vec::new();
            objects::write_requests(&mut text, &larder_objects::requests_of_this_process())?;
            eprintln!("{}", String::from_utf8_lossy(&text).trim_end());
        }
        outcome
    }
}

impl Command {
    fn run(self, global: &Global, program: Program) -> Outcome {
        match self {
            Self::Balance(command) => command.run(global),
            Self::Cat(command) => command.run(),
            Self::Check(command) => Ok(command.run(global, program)),
            Self::Chmod(command) => command.run(),
            Self::Chown(command) => command.run(),
            Self::Complete(command) => command.run(Larder::command()),
            Self::Completions(command) => command.run(),
            Self::Cp(command) => command.run(),
            Self::Device(command) => command.run(global),
            Self::Du(command) => command.run(global),
            Self::Export(command) => command.run(),
            Self::Filesystem(command) => command.run(global),
            Self::Getfattr(command) => command.run(global),
            Self::Health(command) => command.run(global),
            Self::Image(command) => command.run(global),
            Self::Import(command) => command.run(),
            Self::Inspect(command) => command.run(global),
            Self::InstallLinks(command) => command.run(global),
            Self::Ln(command) => command.run(),
            Self::Mkdir(command) => command.run(),
            Self::Mount(command) => command.run(),
            Self::Umount(command) => command.run(),
            Self::Version => version::run(global, program),
            Self::Mv(command) => command.run(),
            Self::Objects(command) => command.run(global),
            Self::Property(command) => command.run(global),
            Self::Rm(command) => command.run(),
            Self::Write(command) => command.run(),
            Self::Ls(command) => command.run(global),
            Self::ManPages(command) => command.run(Larder::command()),
            Self::Mkfs(command) => command.run(global),
            Self::Receive(command) => command.run(global),
            Self::Reflink(command) => command.run(),
            Self::Replace(command) => command.run(global),
            Self::Report(command) => command.run(global),
            Self::Rescue(command) => command.run(global),
            Self::Restore(command) => command.run(global),
            Self::Send(command) => command.run(global),
            Self::Scrub(command) => command.run(global),
            Self::Setfattr(command) => command.run(),
            Self::Stat(command) => command.run(global),
            Self::Streams(command) => command.run(global),
            Self::Subvolume(command) => command.run(global),
            Self::Tar(command) => command.run(),
            Self::Touch(command) => command.run(),
            Self::Truncate(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Larder;

    /// The commands below `command` that do something themselves, and their help.
    fn leaves(command: &clap::Command, path: &str) -> Vec<(String, String)> {
        let path = format!("{path} {}", command.get_name());
        if command.is_hide_set() {
            return Vec::new();
        }
        if command.has_subcommands() {
            return command.get_subcommands().flat_map(|below| leaves(below, &path)).collect();
        }
        let help = command.clone().render_long_help().to_string();
        vec![(path.trim().to_owned(), help)]
    }

    #[test]
    fn every_command_explains_itself_with_an_example() {
        Larder::command().debug_assert();
        let leaves = leaves(&Larder::command(), "");
        assert!(leaves.len() > 10);
        for (path, help) in leaves {
            // Another name of the same commands.
            let path = path.replace("larder device replace ", "larder replace ");
            let example = help.split("Example").nth(1).unwrap_or_default();
            assert!(example.contains(&format!("{path} ")), "{path}: {help}");
        }
    }
}
