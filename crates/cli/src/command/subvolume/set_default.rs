//! `larder subvolume set-default`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::command::Outcome;
use crate::source::PathSource;

/// Choose the subvolume that a mount shows unless told otherwise
///
/// Examples:
///   larder subvolume set-default 256 disk.img
///   larder subvolume set-default disk.img:/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SetDefault {
    #[command(flatten)]
    source: PathSource,
    /// The subvolume by path; or its id, followed by the image
    #[arg(value_name = "IMAGE:/PATH|ID")]
    subvolume: OsString,
    /// The image, when the subvolume is given by id
    #[arg(value_name = "IMAGE")]
    image: Option<OsString>,
}

impl SetDefault {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(self.image.as_ref().unwrap_or(&self.subvolume))?;
        let id = match &self.image {
            Some(_) => {
                let id = self.subvolume.to_str().and_then(|text| text.parse().ok());
                id.context("the subvolume's id is not a number")?
            }
            None => writing.start.lookup(writing.path(&self.subvolume)?)?.into_subvolume()?.id(),
        };
        writing.filesystem.subvolume_by_id(id)?;
        writing.filesystem.set_default_subvolume(id)?;
        Ok(ExitCode::SUCCESS)
    }
}
