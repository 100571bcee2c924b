//! `larder filesystem label`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::command::Outcome;
use crate::source::Source;

/// Show the label of a file system, or change it
///
/// Examples:
///   larder filesystem label disk.img
///   larder filesystem label disk.img pantry
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Label {
    #[command(flatten)]
    source: Source,
    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The new label: one line of at most 255 bytes, or nothing
    #[arg(value_name = "NEWLABEL")]
    label: Option<OsString>,
}

impl Label {
    pub fn run(self) -> Outcome {
        match self.label {
            Some(label) => self.source.open_for_writing(&self.image)?.set_label(label)?,
            None => {
                let label = self.source.open(&self.image)?.label();
                let mut out = io::stdout().lock();
                out.write_all(label.as_bytes())?;
                writeln!(out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
