//! `larder filesystem label`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{Name, write_json};
use crate::source::Source;
use crate::target::Target;

/// Show the label of a file system, or change it
///
/// Examples:
///   larder filesystem label disk.img
///   larder filesystem label disk.img pantry
///   larder filesystem label ~/mnt pantry
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Label {
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE[:/PATH] or PATH")]
    image: PathBuf,
    /// The new label: one line of at most 255 bytes, or nothing
    #[arg(value_name = "NEWLABEL")]
    label: Option<OsString>,
}

impl Label {
    pub fn run(self, global: &Global) -> Outcome {
        let mounted = self.source.mounted_directory(self.image.as_os_str())?;
        match (self.label, mounted) {
            (Some(label), Some(path)) => {
                let directory = File::open(path).with_context(|| path.display().to_string())?;
                let set = larder_ioctl::set_label(directory, label.as_bytes());
                set.with_context(|| path.display().to_string())?;
            }
            (Some(label), None) => {
                let filesystem =
                    self.source.open_for_writing(&Target::parse(self.image.as_os_str()).image)?;
                let set = filesystem.set_label(label);
                set.with_context(|| self.image.display().to_string())?;
            }
            (None, _) => {
                let label = self.source.overview(self.image.as_os_str())?.label()?;
                let mut out = stdout();
                if global.is_json() {
                    let label = name_of(&label);
                    write_json(&mut out, "filesystem-label", &Shown { label })?;
                } else {
                    write_name(&mut out, label)?;
                    writeln!(out)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct Shown {
    label: Option<Name>,
}

/// A label in JSON; none if the file system has none.
pub fn name_of(label: &OsStr) -> Option<Name> {
    (!label.is_empty()).then(|| label.into())
}
