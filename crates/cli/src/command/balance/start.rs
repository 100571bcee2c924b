//! `larder balance start` and `resume`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use larder::{
    Balance, BalanceEnd, BalanceItem, BalanceProgress, ChosenGroup, Filesystem, Overview, SpaceKind,
};
use larder_ioctl::BalanceRun;
use rustix::io::Errno;
use serde_json::json;

use super::place::{Place, is_not_running};
use super::shown::write_filters;
use crate::command::enqueue::Enqueue;
use crate::command::scrub::background;
use crate::global::{Global, Verbosity};
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::progress::Progress;
use crate::source::Source;
use crate::units::Units;

/// Seconds in which a balance of everything can be stopped before it begins.
const DELAY: u32 = 10;
/// The exit code if there is nothing to resume.
const NOTHING_TO_RESUME: u8 = 2;

/// Move block groups, so that their room is free for others, or to other profiles
///
/// What is in a block group moves to others, and the group goes. What snapshots and reflinks share
/// stays shared. With -d, -m or -s only block groups of data, metadata, or of the chunk tree move:
/// those that all filters let pass. Without any of them, all block groups do.
///
/// Filters, with commas between them:
///   usage=PERCENT or FROM..TO   those that are less full than that
///   limit=COUNT or FROM..TO     at most so many
///   profiles=NAME|NAME          those of these profiles
///   devid=ID, drange=FROM..TO   those on a device, or on a part of it
///   vrange=FROM..TO             those at these addresses
///   stripes=FROM..TO            those of so many stripes
///   convert=PROFILE, soft       to another profile; soft: only those that do not have it
///
/// A balance can be paused and resumed, and outlives a crash: larder and the kernel go on with what
/// the other began. On an image Ctrl-C pauses it.
///
/// Examples:
///   larder balance start -dusage=50 disk.img
///   larder balance start -dconvert=raid1,soft -mconvert=raid1,soft /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Start {
    /// Move block groups of data
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "")]
    data: Option<String>,
    /// Move block groups of metadata, and those of the chunk tree alike
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "")]
    metadata: Option<String>,
    /// Move block groups of the chunk tree (with -f)
    #[arg(short, value_name = "FILTERS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "")]
    system: Option<String>,
    /// Make metadata less safe, if a conversion does
    #[arg(short, long)]
    force: bool,
    /// Do not warn and wait before everything moves
    #[arg(long)]
    full_balance: bool,
    /// Tell what would move and become free, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Show what it moves
    #[arg(short, long)]
    verbose: bool,
    /// Go on in the background
    #[arg(long, visible_alias = "bg")]
    background: bool,
    #[command(flatten)]
    enqueue: Enqueue,
    #[command(flatten)]
    source: Source,
    /// An image, which must not be mounted; or a directory of a mounted file system, of larder or
    /// of the kernel
    #[arg(value_name = "IMAGE or PATH")]
    path: OsString,
}

/// Go on with a balance that was paused or interrupted, by larder or by the kernel
///
/// Exit codes: 2 if there is none, otherwise those of 'balance start'.
///
/// Example: larder balance resume disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Resume {
    #[command(flatten)]
    source: Source,
    /// An image, or a directory of a mounted file system, of larder or of the kernel
    #[arg(value_name = "IMAGE or PATH")]
    path: OsString,
}

/// How a balance ended, of a mount or of an image.
struct Ended {
    progress: BalanceProgress,
    end: BalanceEnd,
    without_room: bool,
}

impl Start {
    pub fn run(self, global: &Global) -> Outcome {
        let item = self.item()?;
        let named = || self.path.display().to_string();
        if self.dry_run {
            return self.tell_plan(global, &item).with_context(named);
        }
        if self.verbose || global.verbosity() > Verbosity::Default {
            write_filters(&mut stdout(), &item, 0)?;
        }
        let is_everything = self.data.is_none() && self.metadata.is_none() && self.system.is_none();
        if is_everything && !self.full_balance && !background::is_second() {
            warn()?;
        }
        if self.background && !background::is_second() {
            return Ok(background::start()?.map_or_else(|code| code, |_| ExitCode::SUCCESS));
        }
        let path = self.path.display().to_string();
        let open = || Place::open(&self.source, &self.path).with_context(named);
        let ended = match self.enqueue.wait(open)? {
            Place::Mounted(directory) => {
                begun()?;
                self.enqueue.wait(|| of_mount(larder_ioctl::balance(&directory, &item)))
            }
            Place::Image(filesystem) => {
                begun()?;
                of_image(&filesystem, |tell| filesystem.balance(&item, tell).map(Some))
                    .map(|ended| ended.expect("it was begun"))
            }
        };
        ended.map_or_else(|error| Ok(failed(&path, &error)), |ended| tell(global, &path, &ended))
    }

    /// What is asked for, as file systems keep it.
    fn item(&self) -> anyhow::Result<BalanceItem> {
        ensure!(
            self.system.is_none() || self.force,
            "Refusing to explicitly operate on system chunks.\n\
             Pass --force if you really want to do that."
        );
        let [data, metadata, system] =
            [&self.data, &self.metadata, &self.system].map(Option::as_deref);
        Ok(BalanceItem::from_filters(data, metadata, system, self.force)?)
    }

    fn tell_plan(&self, global: &Global, item: &BalanceItem) -> Outcome {
        let filesystem = self.source.overview(&self.path)?;
        let chosen = filesystem.plan_balance(item)?;
        let freed_bytes = freed_bytes(filesystem.as_ref(), &chosen)?;
        let moved_bytes: u64 = chosen.iter().map(|group| group.used_bytes).sum();
        let mut out = stdout();
        if global.is_json() {
            let group = |group: &ChosenGroup| {
                json!({
                    "start": group.start,
                    "kind": group.kind.name(),
                    "profile": group.profile.name(),
                    "target": group.target.map(larder::Profile::name),
                    "length": group.len_bytes,
                    "used": group.used_bytes,
                })
            };
            let groups: Vec<_> = chosen.iter().map(group).collect();
            let all = json!({ "chunks": groups, "moved": moved_bytes, "freed": freed_bytes });
            write_json(&mut out, "balance-plan", &all)?;
            return Ok(ExitCode::SUCCESS);
        }
        let units = Units::default();
        for group in &chosen {
            let target = group.target.filter(|target| *target != group.profile);
            let target = target.map_or_else(String::new, |target| format!(", to {target}"));
            writeln!(
                out,
                "{} {} at {}: {} of {}{target}",
                group.profile,
                group.kind,
                group.start,
                units.show(group.used_bytes),
                units.show(group.len_bytes)
            )?;
        }
        writeln!(
            out,
            "{} chunks would move, with {}; about {} would become unallocated",
            chosen.len(),
            units.show(moved_bytes),
            units.show(freed_bytes)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Resume {
    pub fn run(self, global: &Global) -> Outcome {
        let path = self.path.display().to_string();
        let ended = match Place::open(&self.source, &self.path).with_context(|| path.clone())? {
            Place::Mounted(directory) => resume_mount(&directory),
            Place::Image(filesystem) => {
                of_image(&filesystem, |tell| filesystem.resume_balance(tell))
            }
        };
        match ended {
            Ok(Some(ended)) => tell(global, &path, &ended),
            Ok(None) => {
                eprintln!("ERROR: balance resume on '{path}' failed: Not in progress");
                Ok(ExitCode::from(NOTHING_TO_RESUME))
            }
            Err(error) => Ok(failed(&path, &error)),
        }
    }
}

/// Bytes of logical address space that become unallocated: the groups that go, less new ones for
/// what does not fit into those that stay.
fn freed_bytes(filesystem: &dyn Overview, chosen: &[ChosenGroup]) -> anyhow::Result<u64> {
    let mut free: BTreeMap<&str, u64> = BTreeMap::new();
    for space in filesystem.space()? {
        let kind = match space.kind {
            SpaceKind::Data | SpaceKind::DataAndMetadata => "data",
            SpaceKind::System => "system",
            SpaceKind::Metadata => "metadata",
        };
        let all = free.entry(kind).or_default();
        *all += space.total_bytes.saturating_sub(space.used_bytes);
    }
    let mut freed = 0;
    for (kind, free) in free {
        let emptied: Vec<_> = chosen
            .iter()
            .filter(|group| group.kind.name() == kind)
            .filter(|group| group.target.is_none_or(|target| target == group.profile))
            .collect();
        let sum = |of: fn(&ChosenGroup) -> u64| emptied.iter().map(|group| of(group)).sum::<u64>();
        let (len, used) = (sum(|group| group.len_bytes), sum(|group| group.used_bytes));
        let elsewhere = free.saturating_sub(len - used);
        let longest = emptied.iter().map(|group| group.len_bytes).max().unwrap_or(1);
        let made = used.saturating_sub(elsewhere).next_multiple_of(longest);
        freed += len.saturating_sub(made);
    }
    Ok(freed)
}

/// Warns before everything moves, as btrfs-progs does.
fn warn() -> anyhow::Result<()> {
    let mut out = stdout();
    writeln!(
        out,
        "WARNING:\n\n\
         \tFull balance without filters requested. This operation is very\n\
         \tintense and takes potentially very long. It is recommended to\n\
         \tuse the balance filters to narrow down the scope of balance.\n\
         \tUse 'btrfs balance start --full-balance' option to skip this\n\
         \twarning. The operation will start in {DELAY} seconds.\n\
         \tUse Ctrl-C to stop it."
    )?;
    for left in (1..=DELAY).rev() {
        write!(out, "{left:2}")?;
        out.flush()?;
        thread::sleep(Duration::from_secs(1));
    }
    writeln!(out, "\nStarting balance without any filters.")?;
    Ok(())
}

/// In the background: the balance begins.
fn begun() -> io::Result<()> {
    if background::is_second() { background::say_begun() } else { Ok(()) }
}

fn of_image(
    filesystem: &Filesystem,
    balance: impl FnOnce(&dyn Fn(&BalanceProgress)) -> larder::Result<Option<Balance>>,
) -> anyhow::Result<Option<Ended>> {
    interrupt::watch()?;
    let line = std::cell::RefCell::new(Progress::of_bytes());
    let balance = balance(&|now| {
        line.borrow_mut().set_of(now.done_bytes, now.total_bytes);
        if interrupt::check().is_err() {
            filesystem.ask_balance_to_pause();
        }
    });
    drop(line);
    let balance = balance?;
    filesystem.sync()?;
    Ok(balance.map(|balance| Ended {
        progress: balance.done.progress,
        end: balance.end,
        without_room: balance.done.without_room > 0,
    }))
}

fn resume_mount(directory: &File) -> anyhow::Result<Option<Ended>> {
    let (run, outcome) = larder_ioctl::resume_balance(directory);
    match outcome {
        Err(error) if is_not_running(&error) => Ok(None),
        outcome => of_mount((run, outcome)).map(Some),
    }
}

fn of_mount((run, outcome): (BalanceRun, io::Result<()>)) -> anyhow::Result<Ended> {
    let BalanceRun { expected, considered, completed, .. } = run;
    let progress =
        BalanceProgress { expected, considered, completed, ..BalanceProgress::default() };
    let end = match &outcome {
        Err(error) if Errno::from_io_error(error) == Some(Errno::CANCELED) => {
            if run.is_pause_requested { BalanceEnd::Paused } else { BalanceEnd::Cancelled }
        }
        _ => BalanceEnd::Finished,
    };
    let without_room = match outcome {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => true,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {
            return Err(larder_ioctl::other_work().into());
        }
        Err(error) if end == BalanceEnd::Finished => {
            return Err(anyhow::Error::from(error)
                .context("There may be more info in syslog - try dmesg | tail"));
        }
        _ => false,
    };
    Ok(Ended { progress, end, without_room })
}

fn tell(global: &Global, path: &str, ended: &Ended) -> Outcome {
    let BalanceProgress { expected, considered, completed, .. } = ended.progress;
    if global.is_json() {
        let state = match ended.end {
            BalanceEnd::Finished => "finished",
            BalanceEnd::Paused => "paused",
            BalanceEnd::Cancelled => "cancelled",
        };
        let all = json!({
            "state": state,
            "expected": expected,
            "considered": considered,
            "completed": completed,
        });
        write_json(&mut stdout(), "balance", &all)?;
    }
    match ended.end {
        BalanceEnd::Paused => eprintln!("balance paused by user"),
        BalanceEnd::Cancelled => eprintln!("balance canceled by user"),
        BalanceEnd::Finished if ended.without_room => {
            let error = anyhow!(
                "No space left on device: {} of {expected} chunks found no room",
                expected - completed
            );
            return Ok(failed(path, &error));
        }
        BalanceEnd::Finished if !global.is_quiet() && !global.is_json() => {
            println!("Done, had to relocate {completed} out of {considered} chunks");
        }
        BalanceEnd::Finished => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(path: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("ERROR: error during balancing '{path}': {error:#}");
    ExitCode::FAILURE
}
