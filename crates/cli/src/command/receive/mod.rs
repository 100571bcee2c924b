//! `larder receive`.

mod dump_json;
mod objects;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{ArgAction, Args};
use larder::{ReceiveError, ReceiveEvent, ReceiveOptions, ReceiveSnapshots, Received};
use larder_objects::{Address, parse_size};
use larder_platform::errno::in_words;
use larder_stream::Detail;

use crate::global::{Global, Verbosity};
use crate::interrupt;
use crate::objects::parse_address;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::progress::Progress;
use crate::source::{PathSource, on_image};
use crate::target::Target;
use crate::time_zone::SHOWN;
use crate::told::Told;

/// How much of the input is read at once.
const INPUT_BYTES: usize = 1 << 20;

/// Make subvolumes of the streams of btrfs send or larder send
///
/// Each snapshot in the stream becomes a subvolume in the directory TARGET: IMAGE:/directory in a
/// file system that is not mounted, or a directory of a mounted btrfs, which takes the rights of
/// root. An increment needs the snapshot that it builds on, received before or sent from there,
/// anywhere in the file system. A subvolume that is complete is read-only and has a received uuid,
/// which `larder subvolume show` shows. One that is not, because the stream was cut short or a
/// command failed, can be changed and has none: delete it and receive again.
///
/// With --from, the newest stream at a URL is received, or the one that --stream names, and before
/// it those that it needs and that are not there yet. After an error or an interruption, run the
/// command again and it goes on: where the stream was left, or where the last checkpoint was taken
/// if the computer failed.
///
/// Examples:
///   btrfs send /data/monday | larder receive backup.img:/snapshots
///   larder receive -f tuesday.stream backup.img:/snapshots
///   larder send disk.img:/monday | larder receive /mnt/backup
///   larder receive --dump -f tuesday.stream
///   larder receive --from s3://bucket/backups restored.img:/
///   larder receive --from file:///srv/backups --stream monday /mnt/backup
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Receive {
    /// Show each command of the stream and change nothing
    #[arg(long)]
    dump: bool,
    /// Read the stream from this file and not from standard input
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Receive from this URL, where larder send --to has sent to
    #[arg(
        long,
        value_name = "URL",
        value_parser = parse_address,
        conflicts_with_all = ["file", "dump"]
    )]
    from: Option<Address>,
    /// The stream to receive, by its id, or by the name or the uuid of its snapshot
    #[arg(long, value_name = "STREAM", requires = "from")]
    stream: Option<String>,
    /// With --from, remember the state of an incomplete snapshot after each SIZE of its stream
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G",
        requires = "from")]
    checkpoint_every: u64,
    /// Stop where the first stream ends; otherwise everything is received up to the end of the
    /// input
    #[arg(short = 'e')]
    stop_at_end: bool,
    /// Give up after N commands that cannot be applied, or never with 0. A subvolume that is
    /// received with errors stays unfinished
    #[arg(long, short = 'E', value_name = "N", default_value_t = 1, value_parser = parse_number)]
    max_errors: u64,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Tell of the data in the stream as it is read; twice for every command. -v before the command
    /// counts too
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Decompress compressed data of the stream before writing it; without this, larder stores it
    /// as it was sent, if the target can hold that
    #[arg(long)]
    force_decompress: bool,
    /// Keep all changes below the target, wherever links lead (always so)
    #[arg(short = 'C', long)]
    chroot: bool,
    /// Where the file system of the target is mounted, which is found without it: a check
    #[arg(short, value_name = "DIR")]
    mount: Option<PathBuf>,
    #[command(flatten)]
    source: PathSource,
    /// Where the subvolumes are made: IMAGE:/directory, or a directory of a mounted file system
    #[arg(required_unless_present = "dump")]
    target: Option<OsString>,
}

impl Receive {
    pub fn run(mut self, global: &Global) -> Outcome {
        self.quiet |= global.is_quiet();
        let detail = match (u8::from(global.verbosity() >= Verbosity::Info)
            + u8::from(global.verbosity() >= Verbosity::Verbose))
        .saturating_add(self.verbose)
        {
            _ if self.quiet => None,
            0 => None,
            1 => Some(Detail::Data),
            _ => Some(Detail::Everything),
        };
        if let (Some(address), Some(target)) = (&self.from, &self.target) {
            return self.receive_objects(address, target, detail);
        }
        let input = match &self.file {
            Some(path) => File::open(path).with_context(|| path.display().to_string())?,
            None if io::stdin().is_terminal() => {
                bail!("no stream comes from a terminal: redirect one, or give a file with -f")
            }
            None => File::from(rustix::io::dup(io::stdin())?),
        };
        let len_bytes = len_of(&input);
        let input = BufReader::with_capacity(INPUT_BYTES, input);
        match &self.target {
            Some(target) if !self.dump => match detail {
                Some(detail) => self.receive(Told::new(input, detail), len_bytes, target),
                None => self.receive(input, len_bytes, target),
            },
            _ => {
                let out = io::BufWriter::new(stdout());
                if global.is_json() {
                    dump_json::dump(input, out)?;
                } else {
                    larder_stream::dump(input, out, &SHOWN)?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn receive(
        &self,
        input: impl Read + Send + 'static,
        len_bytes: Option<u64>,
        target: &OsStr,
    ) -> Outcome {
        let options = self.options();
        let mut watch = Watch::new(self.quiet)?;
        watch.begin(len_bytes);
        let mut observe = |event: ReceiveEvent<'_>| watch.event(&event);
        if self.mounted_directory(target)?.is_some() {
            let outcome = larder::receive_mounted(target, input, &options, &mut observe);
            let folder = target.to_string_lossy();
            let folder = folder.trim_end_matches('/');
            let delete = |name: &str| format!("larder subvolume delete {folder}/{name}");
            drop(watch);
            return Ok(report(outcome, &delete));
        }
        let writing = self.source.write(target)?;
        let directory = writing.start.open_directory(writing.path(target)?);
        let directory = directory.with_context(|| on_image(&Target::parse(target).image))?;
        let outcome = directory.receive(input, &options, &mut observe);
        drop(watch);
        if outcome.is_err() {
            // The commands that were applied stay, so that the user can look at them.
            writing.filesystem.sync()?;
        }
        let delete = |name: &str| format!("larder subvolume delete {}/{name}", trimmed(target));
        Ok(report(outcome, &delete))
    }

    fn options(&self) -> ReceiveOptions {
        ReceiveOptions {
            stop_at_end: self.stop_at_end,
            max_errors: self.max_errors,
            force_decompress: self.force_decompress,
            checkpoints: None,
        }
    }

    /// The target, if it is a directory of a mounted file system, and of the one that -m says.
    fn mounted_directory<'a>(&self, target: &'a OsStr) -> anyhow::Result<Option<&'a Path>> {
        let mounted = self.source.mounted_path(target)?.filter(|target| target.is_dir());
        if let Some(mount) = &self.mount {
            let shown = target.display();
            let place = mounted.with_context(|| format!("{shown}: -m is for what is mounted"))?;
            ensure!(is_below(place, mount)?, "{shown}: is not below {}", mount.display());
        }
        Ok(mounted)
    }
}

/// Whether `place` is in the directory `mount`, on the same file system.
fn is_below(place: &Path, mount: &Path) -> anyhow::Result<bool> {
    let named = |path: &Path| path.display().to_string();
    let real = |path: &Path| path.canonicalize().with_context(|| named(path));
    let (place, mount) = (real(place)?, real(mount)?);
    let uuid = |path: &Path| {
        let directory = File::open(path).with_context(|| named(path))?;
        let info = larder_ioctl::filesystem_info(directory).with_context(|| named(path))?;
        anyhow::Ok(info.uuid)
    };
    Ok(place.starts_with(&mount) && uuid(&place)? == uuid(&mount)?)
}

/// The rest of a file, if it is one.
fn len_of(input: &File) -> Option<u64> {
    let (metadata, position) = (input.metadata().ok()?, rustix::fs::tell(input).ok()?);
    metadata.is_file().then(|| metadata.len().saturating_sub(position))
}

/// Reports how a receive ended; `delete` is the command that deletes a subvolume of this name.
fn report(outcome: Result<Received, ReceiveError>, delete: &dyn Fn(&str) -> String) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("ERROR: {}", in_words(&error));
    if let Some(name) = &error.unfinished {
        let name = shown(name);
        eprintln!(
            "The subvolume {name} is unfinished: it can be changed and has no received uuid."
        );
        eprintln!("To go on, delete it and receive the stream again from its start:");
        eprintln!("  {}", delete(&name));
    }
    ExitCode::FAILURE
}

/// Shows the progress, and checks for a signal that asks it to end.
struct Watch {
    is_quiet: bool,
    progress: Progress,
}

impl Watch {
    fn new(is_quiet: bool) -> io::Result<Self> {
        interrupt::watch()?;
        Ok(Self { is_quiet, progress: Progress::of_bytes() })
    }

    /// An input begins, of this length if it is known.
    fn begin(&mut self, len_bytes: Option<u64>) {
        self.progress = Progress::of_bytes();
        len_bytes.inspect(|len_bytes| self.progress.expect(*len_bytes));
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            self.progress.say(text);
        }
    }

    fn event(&mut self, event: &ReceiveEvent<'_>) -> ControlFlow<()> {
        match event {
            // As btrfs receive does: the one to standard error, the other to standard output.
            ReceiveEvent::Begins { name, is_snapshot: false } if !self.is_quiet => {
                self.progress.say(&format!("At subvol {}", shown(name)));
            }
            ReceiveEvent::Begins { name, is_snapshot: true } if !self.is_quiet => {
                // A receive does not fail because nobody reads this.
                let _ = self.progress.print(&format!("At snapshot {}", shown(name)));
            }
            ReceiveEvent::Failed(error) => {
                self.progress.say(&format!("ERROR: {}", in_words(*error)));
            }
            ReceiveEvent::Refused(text) => self.progress.say(&format!("ERROR: {text}")),
            ReceiveEvent::Read(bytes) => self.progress.set(*bytes),
            _ => {}
        }
        if interrupt::check().is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// A name in a stream, safe for a terminal.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// A target without the slash at its end.
fn trimmed(target: &OsStr) -> String {
    let target = target.to_string_lossy();
    let image_only = !target.contains(":/");
    format!("{}{}", target.trim_end_matches('/'), if image_only { ":" } else { "" })
}
