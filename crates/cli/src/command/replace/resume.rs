//! `larder replace resume`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::command::device::on::{Changing, judge, with_progress};
use crate::outcome::Outcome;
use crate::source::Source;

/// Go on with a replace that was interrupted, by the kernel too
///
/// The target must be there: it is found beside the other devices, or named with --device. The
/// kernel goes on by itself when it mounts the file system.
///
/// Example: larder replace resume --device new.img disk.img
#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    source: Source,
    /// An image of the file system, which must not be mounted; or a directory of a mount of larder
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Resume {
    pub fn run(self) -> Outcome {
        match Changing::open(&self.source, &self.image)? {
            Changing::Image(filesystem) => {
                judge(&with_progress(|tell| filesystem.resume_replace(tell))?)?;
            }
            Changing::Mounted(directory) => larder_ioctl::resume_replace(directory)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
