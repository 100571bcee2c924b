//! `larder subvolume set-default`.

use std::ffi::OsString;
use std::fs::File;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::mounted;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};

/// Choose the subvolume that a mount shows by default
///
/// Examples:
///   larder subvolume set-default 256 disk.img
///   larder subvolume set-default disk.img:/home
///   larder subvolume set-default ~/mnt/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SetDefault {
    #[command(flatten)]
    source: PathSource,
    /// The subvolume by path; or its id, followed by the image
    #[arg(value_name = "IMAGE:/PATH or PATH|ID")]
    subvolume: OsString,
    /// The image, or a directory of a file system that is mounted, when the subvolume is given by
    /// id
    #[arg(value_name = "IMAGE or PATH")]
    image: Option<OsString>,
}

impl SetDefault {
    pub fn run(self) -> Outcome {
        let place = self.image.as_ref().unwrap_or(&self.subvolume);
        if let Some(path) = self.source.mounted_path(place)? {
            let id = match &self.image {
                Some(_) => self.id()?,
                None => mounted::subvolume_at(path)?,
            };
            let directory = File::open(path).with_context(|| path.display().to_string())?;
            let set = larder_ioctl::set_default_subvolume(directory, id);
            set.with_context(|| format!("{}: subvolume {id}", path.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        self.source.change(place, |writing| self.set_in_image(writing).map(|()| 0))
    }

    fn set_in_image(&self, writing: &Writing) -> anyhow::Result<()> {
        let id = match &self.image {
            Some(_) => self.id()?,
            None => {
                let found = writing.start.lookup(writing.path(&self.subvolume)?)?.into_subvolume();
                found.with_context(|| self.subvolume.display().to_string())?.id()
            }
        };
        writing.filesystem.subvolume_by_id(id)?;
        Ok(writing.filesystem.set_default_subvolume(id)?)
    }

    /// The id that stands in place of a path.
    fn id(&self) -> anyhow::Result<u64> {
        let id = parse_number(&self.subvolume.to_string_lossy()).map_err(anyhow::Error::msg);
        id.context("no id of a subvolume")
    }
}
