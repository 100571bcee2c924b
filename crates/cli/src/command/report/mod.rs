//! `larder report`.

mod document;
mod file;
mod names;
mod page;
mod text;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use larder::accounting::Accounting;
use larder::device::KeptState;
use larder::{Filesystem, OpenOptions};

use self::document::Document;
use self::file::ReportFile;
use crate::accounted::Accounted;
use crate::checking::Checking;
use crate::global::{self, Global};
use crate::kept::{check_not_ended, keep_state, unless_ended};
use crate::outcome::Outcome;
use crate::output::{is_terminal, stdout};
use crate::source::{Source, warn_of_bad_copies};
use crate::target::Target;

/// Show where the space went, as a page for a browser
///
/// The page shows what each directory and snapshot holds, alone and shared; how block groups lie on
/// devices; what compression saves; which files are in many pieces; and the errors of devices. It
/// is one file that needs no network, and as readable on a phone. Sums are exact. Nothing is
/// changed.
///
/// On a mount of larder the report is about a commit that is made now, and programs go on. Space
/// that they free comes back when the report is ready. A file system that the kernel has mounted
/// must be unmounted first. With many extents a temporary file is written to TMPDIR, or to /var/tmp.
///
/// Examples:
///   larder report disk.img -o report.html
///   larder report /mnt -o report.html
///   larder report --check /dev/sdb1 -o report.html
///   larder report --text disk.img
///   larder report --format json disk.img | jq '.subvolumes[] | {path, exclusive_bytes}'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Report {
    /// Write the report to this file; to standard output unless given, or if it is "-"
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to write the report; a page unless given, and text on a terminal
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write text, which says what can be freed and by what
    #[arg(long, conflicts_with = "format")]
    text: bool,
    /// Check the file system too, as larder check does, and show the findings by file
    #[arg(long)]
    check: bool,
    /// Check all data too, as larder check --check-data-csum does
    #[arg(long)]
    check_data: bool,
    #[command(flatten)]
    source: Source,
    /// The image file or block device of a file system, or a directory of a mount of larder
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page for a browser
    Html,
    /// The same data for programs
    Json,
    /// What can be freed and by what, in few lines
    Text,
}

impl Report {
    pub fn run(self, global: &Global) -> Outcome {
        let output = self.output.as_deref().filter(|path| *path != Path::new("-"));
        let to_terminal = output.is_none() && is_terminal();
        let format = match self.format {
            _ if global.format == global::Format::Json => Format::Json,
            _ if self.text => Format::Text,
            Some(format) => format,
            None if to_terminal => Format::Text,
            None => Format::Html,
        };
        ensure!(
            format != Format::Html || !to_terminal,
            "a page is not for a terminal: name a file for it with -o"
        );
        let mounted = self.source.mounted_directory(&self.image)?.map(Path::to_owned);
        let source = mounted.clone().map_or_else(|| self.image(), Ok)?;
        let file = output.map(ReportFile::open).transpose()?;
        let kept = mounted.as_deref().map(keep_state).transpose()?;
        let made = self.make(&source, kept.as_ref(), global.is_quiet());
        if let Some(state) = &kept {
            check_not_ended(state, &source)?;
        }
        let (document, filesystem) = made?;
        warn_of_bad_copies(&filesystem);
        let report = match format {
            Format::Html => page::page(&document),
            Format::Json => serde_json::to_string_pretty(&document)? + "\n",
            Format::Text => text::text(&document)?,
        };
        match file {
            Some(file) => file.write(&report)?,
            None => {
                let mut out = stdout();
                out.write_all(report.as_bytes())?;
                out.flush()?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The image; fails if the operand is something else.
    fn image(&self) -> anyhow::Result<PathBuf> {
        let Target { image, path } = Target::parse(&self.image);
        ensure!(
            path == b"/",
            "{}: a report is about a whole file system: leave out :{}",
            self.image.display(),
            OsStr::from_bytes(&path).display()
        );
        Ok(image)
    }

    fn make(
        &self,
        source: &Path,
        kept: Option<&KeptState>,
        is_quiet: bool,
    ) -> anyhow::Result<(Document, Filesystem)> {
        let filesystem = match kept {
            Some(state) => OpenOptions::new().degraded(true).open_devices(state.devices())?,
            None => self.source.open(source)?,
        };
        let mut progress = Accounted::new();
        let accounting = Accounting::of(&filesystem, &mut |now| {
            let told = if is_quiet { ControlFlow::Continue(()) } else { progress.observe(now) };
            if told.is_break() { told } else { unless_ended(kept) }
        })?;
        drop(progress);
        let is_checked = self.check || self.check_data;
        let checking = Checking { data: self.check_data, threads: 0, quiet: is_quiet };
        let check = is_checked.then(|| checking.check(filesystem.volume(), kept)).transpose()?;
        let mut document = Document::new(source, &filesystem, &accounting, check)?;
        if kept.is_some() {
            document.say_that_it_is_mounted();
        }
        Ok((document, filesystem))
    }
}
