//! `larder send`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::{Filesystem, SendOptions, StreamVersion, Subvolume};

use super::Outcome;
use crate::progress::Progress;
use crate::source::{Source, warn_of_bad_copies};
use crate::target::Target;

/// Write read-only snapshots of a file system that is not mounted as streams for btrfs receive
///
/// All snapshots are of one file system; their paths start at the top level.
///
/// Examples:
///   larder send disk.img:/snapshots/monday | btrfs receive /backup
///   larder send -p disk.img:/snapshots/monday -f tuesday.stream disk.img:/snapshots/tuesday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Send {
    /// The receiver has this snapshot: send only what differs from it
    #[arg(short, value_name = "IMAGE:/PATH")]
    parent: Option<OsString>,
    /// The receiver has this snapshot too: clone what it shares; may be given several times. Without
    /// -p the closest relative of each snapshot among them is its parent
    #[arg(short, value_name = "IMAGE:/PATH")]
    clone_source: Vec<OsString>,
    /// Write several snapshots as one stream
    #[arg(short = 'e')]
    one_stream: bool,
    /// Write to this file and not to standard output
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Version of the stream; 0 for the newest
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_version)]
    proto: StreamVersion,
    /// Send data that is stored compressed as it is; needs version 2
    #[arg(long)]
    compressed_data: bool,
    /// Send no data, only what changed
    #[arg(long)]
    no_data: bool,
    #[command(flatten)]
    source: Source,
    /// The snapshots
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    snapshots: Vec<OsString>,
}

fn parse_version(text: &str) -> Result<StreamVersion, String> {
    match text.parse() {
        Ok(0) => Ok(StreamVersion::NEWEST),
        Ok(number) => StreamVersion::from_number(number)
            .ok_or_else(|| format!("there are versions 1 to {}", StreamVersion::NEWEST.number())),
        Err(_) => Err("not a number".into()),
    }
}

impl Send {
    pub fn run(self) -> Outcome {
        let needs_two = self.compressed_data && self.proto == StreamVersion::V1;
        ensure!(!needs_two, "--compressed-data needs --proto 2 or higher");
        let image = Target::parse(&self.snapshots[0]).image;
        let filesystem = self.source.open(&image)?;
        let find = |text: &OsStr| find(&filesystem, &image, text);
        let parent = self.parent.as_deref().map(find).transpose()?;
        let clone_sources =
            self.clone_source.iter().map(|text| find(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let snapshots =
            self.snapshots.iter().map(|text| find(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut out = Output::new(self.file.as_deref())?;
        let last = snapshots.len() - 1;
        for (number, snapshot) in snapshots.iter().enumerate() {
            let parent = match &parent {
                Some(parent) => Some(parent),
                None => snapshot.closest_relative(&clone_sources)?,
            };
            let options = SendOptions {
                version: self.proto,
                parent: parent.cloned(),
                clone_sources: clone_sources.clone(),
                compressed_data: self.compressed_data,
                no_data: self.no_data,
                begins_stream: number == 0 || !self.one_stream,
                ends_stream: number == last || !self.one_stream,
            };
            eprintln!("At subvol {}", self.snapshots[number].display());
            snapshot
                .send(&options, &mut out)
                .with_context(|| self.snapshots[number].display().to_string())?;
        }
        out.flush()?;
        warn_of_bad_copies(&filesystem);
        Ok(ExitCode::SUCCESS)
    }
}

fn find(filesystem: &Filesystem, image: &PathBuf, text: &OsStr) -> anyhow::Result<Subvolume> {
    let target = Target::parse(text);
    if target.image != *image {
        bail!("{}: not of the same file system as {}", text.display(), image.display());
    }
    Ok(filesystem.subvolume(target.path_os())?)
}

/// Where the stream goes, counted.
struct Output {
    inner: Box<dyn Write>,
    written_bytes: u64,
    progress: Progress,
}

impl Output {
    fn new(file: Option<&std::path::Path>) -> anyhow::Result<Self> {
        let inner: Box<dyn Write> = match file {
            Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
            None if io::stdout().is_terminal() => {
                bail!("a stream is not for a terminal: redirect it, or give a file with -f")
            }
            None => Box::new(io::stdout().lock()),
        };
        Ok(Self { inner, written_bytes: 0, progress: Progress::of_bytes() })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(bytes)?;
        self.written_bytes += len as u64;
        self.progress.set(self.written_bytes);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
