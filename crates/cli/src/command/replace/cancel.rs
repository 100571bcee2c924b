//! `larder replace cancel`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::command::device::on::{Changing, shown};
use crate::outcome::Outcome;
use crate::source::Source;

/// The exit code if there is none.
const NOT_STARTED: u8 = 2;

/// Give up a replace that goes on, or was interrupted
///
/// The device stays in its place, and the superblocks of the target are overwritten.
///
/// Exit codes:
///   0  it is cancelled
///   1  it cannot be cancelled
///   2  there is none
///
/// Example: larder replace cancel ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Cancel {
    #[command(flatten)]
    source: Source,
    /// An image of the file system, which must not be mounted; or a directory of one that is
    /// mounted, by larder or by the kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Cancel {
    pub fn run(self) -> Outcome {
        let was_there = match Changing::open(&self.source, &self.image)? {
            Changing::Image(filesystem) => filesystem.cancel_replace()?,
            Changing::Mounted(directory) => larder_ioctl::cancel_replace(directory)?,
        };
        if was_there {
            return Ok(ExitCode::SUCCESS);
        }
        println!("INFO: ioctl(DEV_REPLACE_CANCEL)\"{}\": not started", shown(&self.image));
        Ok(ExitCode::from(NOT_STARTED))
    }
}
