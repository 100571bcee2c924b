//! `larder check`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use larder_check::Report;
use larder_format::BlockGroupFlags;
use larder_format::superblock::OFFSETS;
use larder_rescue::repair::Wishes;
use larder_volume::{Chunk, OpenOptions, Volume};

use crate::checking::Checking;
use crate::devices;
use crate::global::{Format, Global};
use crate::kept::{check_not_ended, keep_state};
use crate::message::{is_broken_pipe, message};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::place::{PlaceOptions, located};
use crate::program::Program;
use crate::repairing::Repairing;
use crate::source::{expect_no_writer, warn_if_in_use};
use crate::target::mounted_path;
use crate::volume::open_volume;

/// Prove a file system sound, or say what is wrong with it
///
/// Reads all metadata, every copy of it, and compares everything that is stored twice. Changes
/// nothing, except with --repair.
///
/// A repair is tried beside the devices first. It is written only if the checker then finds nothing,
/// and all that can be read stays as it is; --partly allows findings to remain that were there
/// before. Otherwise no byte changes. Exit code 0 means that the file system is sound now, 1 that it
/// was left as it was.
///
/// On a mount of larder it checks a commit that is made now, and programs go on. Space that they
/// free comes back at the end of the check. An image or device that is mounted or written to is
/// refused without --force.
///
/// Each finding names the files that the damage touches, and the bytes of devices. `--format json`
/// gives them as fields. Lines that begin with 'not checked' are no findings: they name what larder
/// cannot judge. For a device that is one commit behind, for example, it cannot tell whether power
/// failed or the device missed the commit.
///
/// Exit codes:
///   0  the file system is sound
///   1  something was found: in a tree, a log or a copy of the superblock, on any device
///   2  it could not be checked: wrong usage, or it cannot be opened
///
/// Examples:
///   larder check disk.img
///   larder check --check-data-csum --format json disk1.img disk2.img
///   larder check /mnt
///   larder check --repair --plan disk.img
///   larder check --repair --undo repair.undo disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Check {
    /// Read all data too, every copy, and compare it with its checksums and parity
    #[arg(long)]
    check_data_csum: bool,
    /// Change nothing (always so without --repair)
    #[arg(long, conflicts_with = "repair")]
    readonly: bool,
    /// Repair what is found
    #[arg(long)]
    repair: bool,
    /// With --repair: only say what would be done
    #[arg(long, requires = "repair", conflicts_with = "undo")]
    plan: bool,
    /// With --repair: keep what is overwritten in this new file, for 'larder rescue undo'
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// With --repair: repair what can be repaired, also if other findings remain
    #[arg(long, requires = "repair")]
    partly: bool,
    /// Repair, and build the extent tree anew from all trees
    #[arg(long)]
    init_extent_tree: bool,
    /// Repair, and compute all checksums anew from the data as it is
    #[arg(long)]
    init_csum_tree: bool,
    /// Repair, and build the free space tree anew or drop the caches in files (v1, v2)
    #[arg(long, value_name = "VERSION", value_parser = ["v1", "v2"])]
    clear_space_cache: Option<String>,
    /// Check an image or device also while it is mounted or written to: what changes meanwhile may
    /// look damaged
    #[arg(long)]
    force: bool,
    /// Show progress (always so on a terminal)
    #[arg(short, long, overrides_with = "quiet")]
    progress: bool,
    /// Start at this copy of the superblock; at the newest sound one unless given
    #[arg(short, long = "super", value_name = "COPY", value_parser = parse_copy)]
    superblock: Option<usize>,
    /// How btrfs-progs would read the trees; both are the same here, and take little memory
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// How to write the findings
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Threads to use; as many as there are processors unless given
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Go on when devices are missing, if the others are enough
    #[arg(long)]
    degraded: bool,
    #[command(flatten)]
    place: PlaceOptions,
    /// The image files or block devices of one file system, or a directory of a mount of larder
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// The modes of btrfs-progs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    #[value(alias = "orig")]
    Original,
    Lowmem,
}

/// Reads the number of a copy of the superblock.
fn parse_copy(text: &str) -> Result<usize, String> {
    let copy = text.parse().ok().filter(|copy| *copy < OFFSETS.len());
    copy.ok_or_else(|| format!("'{text}' is not 0, 1 or 2"))
}

/// Tells of block groups that have fewer copies than others of their kind: those are sound.
fn warn_of_incomplete(volume: &Volume) {
    let chunks = volume.chunks();
    let losses = |chunk: &Chunk| chunk.profile().shape().tolerated_losses();
    let is_incomplete = |chunk: &&Arc<Chunk>| {
        let types = |chunk: &Chunk| chunk.flags() & BlockGroupFlags::TYPES;
        chunks.iter().any(|other| types(other) == types(chunk) && losses(other) > losses(chunk))
    };
    let bytes: u64 = chunks.iter().filter(is_incomplete).map(|chunk| chunk.len_bytes()).sum();
    if bytes > 0 {
        eprintln!(
            "WARNING: block groups of {bytes} bytes have fewer copies than others of their kind: \
             'larder filesystem redundancy' shows and completes them"
        );
    }
}

impl Check {
    pub fn run(mut self, global: &Global, program: Program) -> ExitCode {
        self.quiet |= global.is_quiet();
        if global.format == Format::Json {
            self.format = Format::Json;
        }
        // The exit code if the check is not possible at all.
        let cannot_run = ExitCode::from(program.failure_code());
        if self.repairs() {
            return self.repaired().unwrap_or_else(|error| {
                eprintln!("ERROR: {}", message(&error));
                ExitCode::FAILURE
            });
        }
        let report = match self.report() {
            Ok(report) => report,
            Err(error) => {
                eprintln!("ERROR: {}", message(&error));
                return cannot_run;
            }
        };
        match self.write(&report) {
            // If the reader of the output has gone, the findings count all the same.
            Err(error) if !is_broken_pipe(&error) => {
                eprintln!("ERROR: {}", message(&error));
                cannot_run
            }
            _ => ExitCode::from(report.exit_code()),
        }
    }

    fn repairs(&self) -> bool {
        self.repair
            || self.init_extent_tree
            || self.init_csum_tree
            || self.clear_space_cache.is_some()
    }

    fn repaired(&self) -> Outcome {
        ensure!(
            !self.degraded && self.superblock.is_none() && !self.force,
            "--repair works on whole file systems that are not in use, without --degraded, --super \
             and --force"
        );
        let place = self.place.place();
        let wishes = Wishes {
            check_data_csum: self.check_data_csum,
            init_extent_tree: self.init_extent_tree,
            init_csum_tree: self.init_csum_tree,
            clear_space_cache: self.clear_space_cache.is_some(),
            partly: self.partly,
            ..Wishes::default()
        };
        let repairing = Repairing {
            wishes,
            plan_only: self.plan,
            undo: self.undo.clone(),
            json: self.format == Format::Json,
            quiet: self.quiet,
        };
        repairing.run(&devices::all(&self.devices, place)?, place)
    }

    fn report(&self) -> anyhow::Result<Report> {
        let checking =
            Checking { data: self.check_data_csum, threads: self.threads, quiet: self.quiet };
        let Some(path) = self.mounted()? else {
            let place = self.place.place();
            let devices = devices::all(&self.devices, place)?;
            let located = located(&devices, place);
            if self.force {
                warn_if_in_use(&located);
            } else {
                expect_no_writer(&located)?;
            }
            let options = OpenOptions {
                degraded: self.degraded,
                superblock_copy: self.superblock,
                any_state: true,
                ..OpenOptions::default()
            };
            let volume = open_volume(&devices, place, &options)?;
            let report = checking.check(&volume, None)?;
            warn_of_incomplete(&volume);
            return Ok(report);
        };
        let state = keep_state(path)?;
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let report = Volume::open(state.devices(), &options)
            .map_err(anyhow::Error::from)
            .and_then(|volume| checking.check(&volume, Some(&state)));
        check_not_ended(&state, path)?;
        report
    }

    /// The directory of a mounted file system, if that is to be checked.
    fn mounted(&self) -> anyhow::Result<Option<&Path>> {
        let [path] = &self.devices[..] else { return Ok(None) };
        if !path.is_dir() || mounted_path(path.as_os_str()).is_none() {
            return Ok(None);
        }
        ensure!(
            !self.degraded && !self.place.is_given() && self.superblock.is_none(),
            "{}: is a directory; --super, --degraded, --partition and --offset are for images",
            path.display()
        );
        Ok(Some(path))
    }

    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let mut out = io::BufWriter::new(stdout());
        match self.format {
            Format::Text => write!(out, "{report}")?,
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, report)?;
                writeln!(out)?;
            }
        }
        out.flush()?;
        Ok(())
    }
}
