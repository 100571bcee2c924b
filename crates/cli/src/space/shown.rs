//! The operands of commands that show the space of file systems.

use std::path::PathBuf;

use clap::Args;
use larder::Overview;
use serde::Serialize;

use crate::print::Name;
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

    /// A description of each, after the path that names it.
    pub fn describe_each<T>(
        &self,
        describe: impl Fn(&dyn Overview) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<At<T>>> {
        let describe = |(filesystem, path): (anyhow::Result<Box<dyn Overview>>, &PathBuf)| {
            Ok(At { path: path.into(), described: describe(&*filesystem?)? })
        };
        self.open_each().zip(&self.images).map(describe).collect()
    }
}

/// A file system as JSON.
#[derive(Serialize)]
pub struct At<T> {
    path: Name,
    #[serde(flatten)]
    described: T,
}
