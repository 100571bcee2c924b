//! `larder image`: images as files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::command::device::on::shown;
use crate::command::filesystem::resize::minimize;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::source::Source;
use crate::target::Target;

/// Work with images as files
#[derive(Debug, Subcommand)]
pub enum Image {
    Shrink(Shrink),
}

/// Make an image as small as it can be, to ship it
///
/// It does what 'filesystem resize min' does, for all devices of the file system. What is free
/// between files goes, and the image files are cut. Little room is left for changes: 'filesystem
/// resize' makes some again.
///
/// Example: larder image shrink disk.img
#[derive(Debug, Args)]
pub struct Shrink {
    #[command(flatten)]
    source: Source,
    /// An image, which must not be mounted
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

impl Image {
    pub fn run(self, _global: &Global) -> Outcome {
        let Self::Shrink(command) = self;
        command.shrink().with_context(|| shown(&command.image))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Shrink {
    fn shrink(&self) -> anyhow::Result<()> {
        let image = Target::parse(&self.image).image;
        let devices = self.source.open(&image)?.devices();
        devices.into_iter().try_for_each(|device| minimize(&self.source, &image, &device.into()))
    }
}
