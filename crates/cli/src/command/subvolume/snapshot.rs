//! `larder subvolume snapshot`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use jiff::Timestamp;
use jiff::civil::DateTime;
use larder::SnapshotKind;

use super::mounted::ParentAndName;
use super::retention::{Retention, name_at, time_in};
use crate::global::Global;
use crate::message::message;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::source::{PathSource, on_image};
use crate::target::Target;
use crate::time_zone::time_zone;

/// Take a snapshot of a subvolume
///
/// Examples:
///   larder subvolume snapshot -r disk.img:/home disk.img:/snapshots/monday
///   larder subvolume snapshot -r mnt/home mnt/snapshots/monday
///   larder subvolume snapshot -r --keep 'all=1h daily=7 weekly=4' mnt/home mnt/snapshots
///
/// With --keep the snapshot is one of a series in the directory DEST: its name is a prefix and the
/// local time. Older ones of the series are then deleted, unless one of these words keeps them:
/// all=TIME keeps all that are younger, and hourly=N, daily=N, weekly=N, monthly=N and yearly=N the
/// newest of each of the last N periods that have any. Other names in DEST are left alone.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Snapshot {
    /// Make it read-only
    #[arg(short)]
    read_only: bool,
    /// Take one of a series, and delete those that these words do not keep
    #[arg(long, value_name = "WORDS")]
    keep: Option<Retention>,
    /// What names of the series begin with; the name of the source and a hyphen unless given
    #[arg(long, value_name = "PREFIX", requires = "keep")]
    prefix: Option<String>,
    #[command(flatten)]
    source: PathSource,
    /// The subvolume, in an image or in a file system that is mounted
    #[arg(value_name = "IMAGE:/SOURCE or SOURCE")]
    subvolume: OsString,
    /// The snapshot, or a directory to make it in under the subvolume's name
    #[arg(value_name = "IMAGE:/DEST or DEST")]
    destination: OsString,
}

/// A series of snapshots in one directory.
struct Series<'a> {
    keep: &'a Retention,
    prefix: String,
    now: DateTime,
}

impl Series<'_> {
    fn next_name(&self) -> String {
        name_at(&self.prefix, self.now)
    }

    /// Those of `names` that do not stay.
    fn stale(&self, names: impl Iterator<Item = OsString>) -> Vec<String> {
        let times: Vec<DateTime> =
            names.filter_map(|name| time_in(&self.prefix, name.to_str()?)).collect();
        let stale = self.keep.stale(self.now, &times);
        stale.into_iter().map(|time| name_at(&self.prefix, time)).collect()
    }
}

impl Snapshot {
    pub fn run(self, global: &Global) -> Outcome {
        let failures = match self.source.mounted_path(&self.subvolume)? {
            Some(source) => self.take_mounted(source, global)?,
            None => self.take_in_image(global)?,
        };
        Ok(exit_code(failures))
    }

    /// The series that a snapshot of the subvolume with the name `source` belongs to.
    fn series(&self, source: Option<&OsStr>) -> anyhow::Result<Option<Series<'_>>> {
        let Some(keep) = &self.keep else { return Ok(None) };
        let prefix = match (&self.prefix, source.and_then(OsStr::to_str)) {
            (Some(prefix), _) => prefix.clone(),
            (None, Some(source)) => format!("{source}-"),
            (None, None) => bail!("{}: has no name; add --prefix", self.subvolume.display()),
        };
        let now = Timestamp::now().to_zoned(time_zone()?).datetime();
        Ok(Some(Series { keep, prefix, now }))
    }

    /// Takes it in a mounted file system. Returns how many errors were reported.
    fn take_mounted(&self, source: &Path, global: &Global) -> anyhow::Result<usize> {
        let directory = Path::new(&self.destination);
        let name = || -> anyhow::Result<Option<OsString>> {
            let source = source.canonicalize().with_context(|| source.display().to_string())?;
            Ok(source.file_name().map(OsStr::to_owned))
        };
        let series = if self.keep.is_some() { self.series(name()?.as_deref())? } else { None };
        let mut destination = directory.to_owned();
        if let Some(series) = &series {
            destination.push(series.next_name());
        } else if destination.is_dir() {
            destination.push(name()?.with_context(|| self.nameless())?);
        }
        let named = ParentAndName::of(&destination)?;
        named.snapshot(source, self.read_only)?;
        self.tell(global, &named.path())?;
        let Some(series) = series else { return Ok(0) };
        let mut failures = 0;
        for name in series.stale(named.names()?.into_iter()) {
            let stale = named.beside(name.into())?;
            let deleted = stale.expect_subvolume().and_then(|()| stale.delete());
            let deleted = deleted.with_context(|| stale.to_string());
            failures += tell_deleted(global, &stale.path(), deleted)?;
        }
        Ok(failures)
    }

    /// Takes it in an image. Returns how many errors were reported.
    fn take_in_image(&self, global: &Global) -> anyhow::Result<usize> {
        let writing = self.source.write(&self.subvolume)?;
        let source = writing.path(&self.subvolume)?;
        let named = || on_image(&Target::parse(&self.subvolume).image);
        let subvolume = writing.start.lookup(&source).with_context(named)?.into_subvolume();
        let subvolume = subvolume.with_context(|| self.subvolume.display().to_string())?;
        let directory = PathBuf::from(writing.path(&self.destination)?);
        let name = Path::new(&source).file_name();
        let series = self.series(name)?;
        let mut destination = directory.clone();
        if let Some(series) = &series {
            destination.push(series.next_name());
        } else if writing.start.open_directory(&destination).is_ok() {
            destination.push(name.with_context(|| self.nameless())?);
        }
        let kind = if self.read_only { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        let taken = subvolume.snapshot_to(&writing.start, &destination, kind);
        taken.with_context(named)?;
        self.tell(global, &writing.shown(&destination))?;
        let Some(series) = series else { return Ok(0) };
        // The snapshot is durable before others go.
        writing.filesystem.sync()?;
        let entries = writing.start.open_directory(&directory)?.entries()?;
        let names = entries.map(|entry| Ok(entry?.name().to_owned()));
        let names: Vec<OsString> = names.collect::<larder::Result<_>>()?;
        let mut failures = 0;
        for name in series.stale(names.into_iter()) {
            let path = directory.join(name);
            let shown = writing.shown(&path);
            let deleted = writing.start.delete_subvolume(&path);
            let deleted = deleted.with_context(|| shown.display().to_string());
            failures += tell_deleted(global, &shown, deleted)?;
        }
        writing.filesystem.sync()?;
        Ok(failures)
    }

    fn tell(&self, global: &Global, taken: &Path) -> io::Result<()> {
        if global.is_quiet() {
            return Ok(());
        }
        let what = if self.read_only { "readonly snapshot" } else { "snapshot" };
        let (source, taken) = (self.subvolume.display(), taken.display());
        writeln!(stdout(), "Create a {what} of '{source}' in '{taken}'")
    }

    fn nameless(&self) -> String {
        let (source, destination) = (self.subvolume.display(), self.destination.display());
        format!("{destination}: is a directory, and {source} has no name to take; add one")
    }
}

/// Tells what became of a snapshot of a series. Returns the number of errors.
fn tell_deleted(global: &Global, path: &Path, deleted: anyhow::Result<()>) -> io::Result<usize> {
    match deleted {
        Err(error) => {
            eprintln!("ERROR: {}", message(&error));
            return Ok(1);
        }
        Ok(()) if !global.is_quiet() => {
            writeln!(stdout(), "Delete subvolume (no-commit): '{}'", path.display())?;
        }
        Ok(()) => {}
    }
    Ok(0)
}
