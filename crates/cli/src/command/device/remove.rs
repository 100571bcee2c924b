//! `larder device remove`.

use std::ffi::OsString;

use anyhow::Context;
use clap::Args;

use super::on::{Changing, judge, of_mount, shown, with_progress};
use crate::command::enqueue::Enqueue;
use crate::outcome::{Outcome, exit_code};
use crate::source::Source;

/// Remove devices from a file system
///
/// Everything on them is moved to the others first. That can be interrupted, and begun again: it goes
/// on with what is left. What snapshots and reflinks share stays shared.
///
/// Examples:
///   larder device remove second.img disk.img
///   larder device remove missing --degraded disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Remove {
    #[command(flatten)]
    enqueue: Enqueue,
    #[command(flatten)]
    source: Source,
    /// The devices to remove: paths, ids, or `missing` for one that is not there
    #[arg(required = true, value_name = "DEVICE or DEVID")]
    removed: Vec<OsString>,
    /// An image of the file system, which must not be mounted; or a directory of one that is
    /// mounted, by larder or by the kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Remove {
    pub fn run(self) -> Outcome {
        let filesystem = self.enqueue.wait(|| Changing::open(&self.source, &self.image))?;
        let mut failures = 0;
        for name in &self.removed {
            if let Err(error) = self.remove(&filesystem, name).with_context(|| shown(name)) {
                eprintln!("ERROR: {error:#}");
                failures += 1;
            }
        }
        Ok(exit_code(failures))
    }

    fn remove(&self, filesystem: &Changing, name: &OsString) -> anyhow::Result<()> {
        let device = filesystem.device(name)?;
        match filesystem {
            Changing::Image(filesystem) => {
                judge(&with_progress(|tell| filesystem.remove_device(device.id, tell))?)
            }
            Changing::Mounted(directory) => self
                .enqueue
                .wait(|| larder_ioctl::remove_device(directory, device.id).map_err(of_mount)),
        }
    }
}
