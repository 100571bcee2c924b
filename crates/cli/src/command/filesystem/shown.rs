//! The operands of commands that show the space of file systems.

use std::path::PathBuf;

use clap::Args;
use larder::Overview;

use crate::source::Source;
use crate::units::Units;

/// File systems to show, and the units of their sizes.
#[derive(Debug, Args)]
pub struct Shown {
    #[command(flatten)]
    pub units: Units,
    #[command(flatten)]
    source: Source,
    /// Image files or block devices, each with a file system of its own, or directories of file
    /// systems that are mounted
    #[arg(required = true, value_name = "IMAGE[:/PATH] or PATH")]
    images: Vec<PathBuf>,
}

impl Shown {
    /// Opens one file system after the other.
    pub fn open_each(&self) -> impl ExactSizeIterator<Item = anyhow::Result<Box<dyn Overview>>> {
        self.images.iter().map(|image| self.source.overview(image.as_os_str()))
    }
}
