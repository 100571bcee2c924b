//! `larder touch`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;
use jiff::civil::DateTime;
use larder::{ErrorKind, Inode, SetAttributes, Timestamp};

use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};
use crate::time_zone::time_zone;

/// Set times in a file system that is not mounted, and make files that are missing
///
/// Example: larder touch -d '2026-11-20 12:00' disk.img:/var/lib/installed
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Touch {
    /// Only the time of last access
    #[arg(short)]
    access: bool,
    /// Only the time of last change
    #[arg(short)]
    modification: bool,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Symbolic links themselves and not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// This time and not now: a date with time, in the local time zone unless it says which; or
    /// @SECONDS since 1970
    #[arg(short, long, value_name = "TIME", value_parser = parse_time, conflicts_with = "reference")]
    date: Option<Timestamp>,
    /// The times of this file: IMAGE:/PATH in the same file system, or a file of this host
    #[arg(short, long, value_name = "FILE")]
    reference: Option<OsString>,
    #[command(flatten)]
    source: PathSource,
    /// What to touch
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Permissions of a new file, before the umask.
const PERMISSIONS: u32 = 0o666;

/// Times of access and of change.
#[derive(Clone, Copy)]
struct Times {
    atime: Timestamp,
    mtime: Timestamp,
}

impl Touch {
    pub fn run(self) -> Outcome {
        self.source.change(&self.paths[0], |writing| self.touch(writing).map(|()| 0))
    }

    fn touch(&self, writing: &Writing) -> anyhow::Result<()> {
        let times = self.times(writing)?;
        let is_all = self.access == self.modification;
        let attributes = SetAttributes {
            atime: (is_all || self.access).then_some(times.atime),
            mtime: (is_all || self.modification).then_some(times.mtime),
            ..Default::default()
        };
        for text in &self.paths {
            if let Some(inode) = self.find(writing, text)? {
                let touched = inode.set_attributes(&attributes);
                touched.with_context(|| text.display().to_string())?;
            }
        }
        Ok(())
    }

    fn find(&self, writing: &Writing, text: &OsStr) -> anyhow::Result<Option<Inode>> {
        let path = writing.path(text)?;
        let found = if self.no_dereference {
            writing.start.lookup(&path)
        } else {
            writing.start.resolve(&path)
        };
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let makes = !self.no_create && !self.no_dereference;
                let made = makes.then(|| writing.create_file(&path, PERMISSIONS)).transpose()?;
                Ok(made.map(larder::File::into_inode))
            }
            found => Ok(Some(found?)),
        }
    }

    fn times(&self, writing: &Writing) -> anyhow::Result<Times> {
        let Some(reference) = &self.reference else {
            let time = self.date.unwrap_or_else(Timestamp::now);
            return Ok(Times { atime: time, mtime: time });
        };
        if let Ok(path) = writing.path(reference) {
            let metadata = writing.start.metadata(path)?;
            return Ok(Times { atime: metadata.atime, mtime: metadata.mtime });
        }
        let found = rustix::fs::stat(Path::new(reference));
        let found = found.with_context(|| reference.display().to_string())?;
        let time =
            |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        Ok(Times {
            atime: time(found.st_atime, found.st_atime_nsec as u64),
            mtime: time(found.st_mtime, found.st_mtime_nsec as u64),
        })
    }
}

fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = seconds.parse().with_context(|| format!("'{text}' is not a time"))?;
        return Ok(Timestamp { seconds, nanoseconds: 0 });
    }
    let time = match (text.parse::<jiff::Timestamp>(), text.parse::<DateTime>()) {
        (Ok(time), _) => time,
        (_, Ok(local)) => local.to_zoned(time_zone()?)?.timestamp(),
        _ => bail!("'{text}' is not a time"),
    };
    // Nanoseconds count forward, also before 1970.
    let nanoseconds = time.as_nanosecond();
    Ok(Timestamp {
        seconds: nanoseconds.div_euclid(1_000_000_000) as i64,
        nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
    })
}
