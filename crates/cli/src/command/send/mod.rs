//! `larder send`.

mod objects;
mod passing;
mod sending;
mod snapshot;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::{Filesystem, MountedSnapshot, SendError, SendOptions, StreamVersion, Subvolume};
use larder_objects::Address;
use larder_platform::for_this_user_only;

use self::passing::Passing;
use self::sending::Sending;
use self::snapshot::Snapshot;
use crate::global::Global;
use crate::interrupt::HalfMade;
use crate::objects::{encrypt, parse_address};
use crate::outcome::Outcome;
use crate::output::{is_terminal, stdout_of_content};
use crate::source::{Source, on_image, warn_of_bad_copies};
use crate::target::Target;

/// Write read-only snapshots as streams for btrfs receive and larder receive
///
/// A snapshot is IMAGE:/PATH in a file system that is not mounted, with paths that start at the top
/// level, or the path of its root in one that is. Mounts of larder and of the kernel's btrfs work
/// the same way; they answer root, and larder's also the user who mounted. All snapshots are of one
/// file system.
///
/// With --to, each snapshot becomes a stream of objects at a URL: s3://BUCKET/PREFIX, gs://, az://
/// or file:///DIRECTORY. A send that was interrupted goes on where it was when it is repeated, and
/// what is there already is not sent again. `larder receive --from` receives such streams, with
/// those that they need, and `larder streams` lists, verifies and prunes them.
///
/// Examples:
///   larder send disk.img:/snapshots/monday | btrfs receive /backup
///   larder send -p disk.img:/snapshots/monday -f tuesday.stream disk.img:/snapshots/tuesday
///   larder send -p /mnt/monday /mnt/tuesday | ssh host larder receive backup.img:/
///   larder send --to s3://bucket/backups ~/mnt/monday
///   larder send --to s3://bucket/backups --incremental ~/mnt/tuesday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Send {
    /// The receiver has this snapshot: send only what differs from it
    #[arg(short, value_name = "SNAPSHOT")]
    parent: Option<OsString>,
    /// The receiver has this snapshot too: clone what it shares; may be given several times.
    /// Without -p the closest relative of each snapshot among them is its parent
    #[arg(short, value_name = "SNAPSHOT")]
    clone_source: Vec<OsString>,
    /// Write several snapshots as one stream
    #[arg(short = 'e')]
    one_stream: bool,
    /// Write to this file and not to standard output
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send objects to this URL
    #[arg(
        long,
        value_name = "URL",
        value_parser = parse_address,
        conflicts_with_all = ["file", "one_stream", "no_data"]
    )]
    to: Option<Address>,
    /// Encrypt what is at the URL, which must be empty or encrypted, with the key that
    /// LARDER_KEY_FILE or its like gives
    #[arg(long, requires = "to")]
    encrypt: bool,
    /// Send only what differs from the closest relative of each snapshot that is here and at the
    /// URL; everything if there is none
    #[arg(long, requires = "to", conflicts_with_all = ["parent", "clone_source"])]
    incremental: bool,
    /// Version of the stream; 0 for the newest. 1 unless given, and 2 with --compressed-data
    #[arg(long, value_name = "N", value_parser = parse_version)]
    proto: Option<Proto>,
    /// Send data that is stored compressed as it is
    #[arg(long)]
    compressed_data: bool,
    /// Send no data, only what changed
    #[arg(long)]
    no_data: bool,
    /// Tell the version of the stream, and how long each stream is
    #[arg(short, long, overrides_with = "quiet")]
    verbose: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    source: Source,
    /// The snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
}

/// The wanted version of the stream.
#[derive(Clone, Copy, Debug)]
enum Proto {
    Newest,
    Version(StreamVersion),
}

fn parse_version(text: &str) -> Result<Proto, String> {
    match text.parse() {
        Ok(0) => Ok(Proto::Newest),
        Ok(number) => StreamVersion::from_number(number)
            .map(Proto::Version)
            .ok_or_else(|| format!("there are versions 1 to {}", StreamVersion::NEWEST.number())),
        Err(_) => Err(format!("'{text}' is not a number")),
    }
}

impl Send {
    pub fn run(self, global: &Global) -> Outcome {
        if self.source.mounted_path(&self.snapshots[0])?.is_some() {
            let first = open_mounted(&self.snapshots[0])?;
            self.send(global, |text| find_mounted(&first, &self.snapshots[0], text))?;
            return Ok(ExitCode::SUCCESS);
        }
        let image = Target::parse(&self.snapshots[0]).image;
        let filesystem = self.source.open(&image)?;
        self.send(global, |text| find(&filesystem, &image, text))?;
        warn_of_bad_copies(&filesystem);
        Ok(ExitCode::SUCCESS)
    }

    /// Sends all snapshots, which `find` finds.
    fn send<S: Snapshot>(
        &self,
        global: &Global,
        find: impl Fn(&OsStr) -> anyhow::Result<S>,
    ) -> anyhow::Result<()> {
        let find_all = |texts: &[OsString]| -> anyhow::Result<Vec<S>> {
            texts.iter().map(|text| find(text)).collect()
        };
        let parent = self.parent.as_deref().map(&find).transpose()?;
        let clone_sources = find_all(&self.clone_source)?;
        let snapshots = find_all(&self.snapshots)?;
        let version = match self.proto {
            Some(Proto::Newest) => snapshots[0].newest_version(),
            Some(Proto::Version(version)) => version,
            None if self.compressed_data => StreamVersion::V2,
            None => StreamVersion::V1,
        };
        ensure!(
            !self.compressed_data || version >= StreamVersion::V2,
            "--compressed-data requires protocol version >= 2 (requested {})",
            version.number()
        );
        let (is_verbose, is_quiet) = match (self.verbose, self.quiet) {
            (false, false) => (global.is_verbose(), global.is_quiet()),
            here => here,
        };
        if is_verbose {
            let newest = snapshots[0].newest_version().number();
            eprintln!("Protocol version requested: {} (supported {newest})", version.number());
        }
        let sending = Sending {
            names: &self.snapshots,
            snapshots,
            parent,
            clone_sources,
            version,
            compressed_data: self.compressed_data,
            no_data: self.no_data,
            is_verbose,
            is_quiet,
        };
        match &self.to {
            Some(address) => {
                if self.encrypt {
                    encrypt(address)?;
                }
                objects::send(&sending, address, self.incremental)
            }
            None => self.write_streams(&sending),
        }
    }

    fn write_streams<S: Snapshot>(&self, sending: &Sending<'_, S>) -> anyhow::Result<()> {
        let file: Vec<PathBuf> = self.file.iter().cloned().collect();
        let half_made = HalfMade::of(&file)?;
        let mut out = open_output(self.file.as_deref())?;
        let last = sending.snapshots.len() - 1;
        for (number, snapshot) in sending.snapshots.iter().enumerate() {
            let options = SendOptions {
                begins_stream: number == 0 || !self.one_stream,
                ends_stream: number == last || !self.one_stream,
                ..sending.options(sending.parent_of(snapshot)?)
            };
            let name = sending.begin(number);
            let mut passing = Passing::new(&mut out, options.progress.clone());
            match snapshot.send(&options, &mut passing) {
                // Elsewhere a reader that goes has seen enough; here it has an incomplete snapshot.
                Err(SendError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    bail!("{name}: the reader has closed the stream before its end")
                }
                sent => sent.with_context(|| name.to_string())?,
            }
            sending.tell_length(number, passing.passed_bytes);
        }
        out.flush()?;
        half_made.keep();
        Ok(())
    }
}

fn find(filesystem: &Filesystem, image: &Path, text: &OsStr) -> anyhow::Result<Subvolume> {
    let target = Target::parse(text);
    if target.image != *image {
        bail!("{}: not of the same file system as {}", text.display(), image.display());
    }
    filesystem.subvolume(target.path_os()).with_context(|| on_image(image))
}

fn open_mounted(text: &OsStr) -> anyhow::Result<MountedSnapshot> {
    MountedSnapshot::open(text).with_context(|| text.display().to_string())
}

fn find_mounted(
    first: &MountedSnapshot,
    name: &OsStr,
    text: &OsStr,
) -> anyhow::Result<MountedSnapshot> {
    let snapshot = open_mounted(text)?;
    if !snapshot.is_together(first) {
        bail!("{}: not of the same file system as {}", text.display(), name.display());
    }
    Ok(snapshot)
}

/// The file for the streams, or standard output.
fn open_output(file: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match file {
        Some(path) => {
            let mut options = File::options();
            let options = for_this_user_only(options.write(true).create(true).truncate(true));
            Box::new(options.open(path).with_context(|| path.display().to_string())?)
        }
        None if is_terminal() => {
            bail!("a stream is not for a terminal: redirect it, or give a file with -f")
        }
        None => Box::new(stdout_of_content()),
    })
}
