//! `larder subvolume get-default`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::list::Listed;
use crate::command::Outcome;
use crate::source::Source;

/// Show the subvolume that a mount shows unless told otherwise
///
/// Example: larder subvolume get-default disk.img
#[derive(Debug, Args)]
pub struct GetDefault {
    #[command(flatten)]
    source: Source,
    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

impl GetDefault {
    pub fn run(self) -> Outcome {
        let filesystem = self.source.open(&self.image)?;
        let subvolume = filesystem.default_subvolume()?;
        let info = subvolume.info()?;
        match &info.name {
            None => println!("ID {} (FS_TREE)", info.id),
            Some(name) => {
                let path = Listed::path_of(&filesystem, info.id)?;
                println!(
                    "ID {} gen {} top level {} path {}",
                    info.id,
                    info.generation,
                    name.parent,
                    path.display()
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
