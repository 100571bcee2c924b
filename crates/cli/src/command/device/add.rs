//! `larder device add`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larder::mkfs::{Claimed, MkfsError};
use larder_objects::parse_size;

use super::on::{Changing, of_mount};
use crate::command::enqueue::Enqueue;
use crate::outcome::{Outcome, exit_code};
use crate::source::Source;

/// Add devices to a file system
///
/// What they had is lost. New data may go there from now on; what exists stays where it is.
///
/// Examples:
///   larder device add second.img --create 10G disk.img
///   larder device add /dev/sdc /dev/sdd /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Add {
    /// Overwrite what a device has
    #[arg(short, long)]
    force: bool,
    /// Do not discard what a device has
    #[arg(short = 'K', long = "nodiscard")]
    no_discard: bool,
    /// Make files of this length where there are none
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    create: Option<u64>,
    #[command(flatten)]
    enqueue: Enqueue,
    #[command(flatten)]
    source: Source,
    /// The block devices or image files to add
    #[arg(required = true, value_name = "DEVICE")]
    added: Vec<PathBuf>,
    /// An image of the file system, which must not be mounted; or a directory of one that is
    /// mounted, by larder or by the kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Add {
    pub fn run(self) -> Outcome {
        let filesystem = self.enqueue.wait(|| Changing::open(&self.source, &self.image))?;
        let mut failures = 0;
        for path in &self.added {
            let added = self.add(&filesystem, path).with_context(|| path.display().to_string());
            if let Err(error) = added {
                eprintln!("ERROR: {error:#}");
                failures += 1;
            }
        }
        Ok(exit_code(failures))
    }

    fn add(&self, filesystem: &Changing, path: &Path) -> anyhow::Result<()> {
        let claimed = Claimed::open(path, self.create, self.force, !self.no_discard);
        let claimed = claimed.map_err(|error| match error {
            MkfsError::Occupied { .. } => {
                anyhow::Error::from(error).context("-f overwrites what it has")
            }
            error => error.into(),
        })?;
        match filesystem {
            Changing::Image(filesystem) => {
                filesystem.add_device(claimed.device().clone())?;
                claimed.keep();
                Ok(())
            }
            Changing::Mounted(directory) => {
                // The server or the kernel opens it itself.
                claimed.keep();
                let path = path.canonicalize()?;
                let add = || larder_ioctl::add_device(directory, &path).map_err(of_mount);
                self.enqueue.wait(add)
            }
        }
    }
}
