//! `larder replace start`.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use larder::mkfs::{Claimed, MkfsError};
use larder::{ReplaceState, Replacement};
use larder_objects::parse_size;

use crate::command::device::on::{Changing, Device, judge, of_mount, shown, with_progress};
use crate::command::enqueue::Enqueue;
use crate::command::scrub::background;
use crate::outcome::Outcome;
use crate::source::Source;

/// Copy everything on a device to another, which takes its place
///
/// The target gets the id and the UUID of the device, whose superblocks are overwritten at the end.
/// If the target is smaller, what lies after its end is moved first. What the target had is lost.
/// The file system can be used meanwhile. It takes as long as copying what is in use.
///
/// When it is interrupted, 'replace resume' goes on, and so does the kernel when it mounts the file
/// system with the target; 'replace cancel' gives it up. On a mount it goes on in the background,
/// unless -B is given.
///
/// Examples:
///   larder replace start old.img new.img --create 20G disk.img
///   larder replace start -B /dev/sdb /dev/sdd /mnt
///   larder replace start --degraded 2 new.img disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Start {
    /// Read the device only where no other copy is good: for one that fails
    #[arg(short = 'r')]
    avoid_source: bool,
    /// Overwrite what the target has
    #[arg(short, long)]
    force: bool,
    /// Stay in the foreground until it has ended; of an image it always does
    #[arg(short = 'B')]
    foreground: bool,
    #[command(flatten)]
    enqueue: Enqueue,
    /// Do not discard what the target has
    #[arg(short = 'K', long = "nodiscard")]
    no_discard: bool,
    /// Make a file of this length if the target is none yet
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    create: Option<u64>,
    #[command(flatten)]
    source: Source,
    /// The device to replace: its path, its id, or `missing` for one that is not there
    #[arg(value_name = "DEVICE or DEVID")]
    replaced: OsString,
    /// The block device or image file that takes its place
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// An image of the file system, which must not be mounted; or a directory of one that is
    /// mounted, by larder or by the kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Start {
    pub fn run(self) -> Outcome {
        let filesystem = self.enqueue.wait(|| Changing::open(&self.source, &self.image))?;
        let device = filesystem.device(&self.replaced)?;
        ensure!(
            !is_member(&filesystem, &self.target)?,
            "{}: is a device of this file system",
            self.target.display()
        );
        match filesystem {
            Changing::Image(filesystem) => {
                let state = filesystem.replace_status()?.state;
                ensure!(
                    state != ReplaceState::Suspended,
                    "a replace is unfinished: 'larder replace resume' goes on, \
                     'larder replace cancel' gives it up"
                );
                let claimed = self.claim()?;
                let wanted = Replacement {
                    devid: device.id,
                    target: claimed.device().clone(),
                    avoid_source: self.avoid_source,
                };
                let moved = with_progress(|tell| filesystem.replace_device(&wanted, tell));
                // One that was interrupted can go on with its target.
                let state = filesystem.replace_status()?.state;
                if moved.is_ok() || state == ReplaceState::Suspended {
                    claimed.keep();
                }
                judge(&moved.with_context(|| shown(&self.replaced))?)?;
            }
            Changing::Mounted(directory) => self.on_mount(&directory, &device)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn claim(&self) -> anyhow::Result<Claimed> {
        let claimed = Claimed::open(&self.target, self.create, self.force, !self.no_discard);
        claimed.map_err(|error| match error {
            MkfsError::Occupied { .. } => {
                anyhow::Error::from(error).context("-f overwrites what it has")
            }
            error => error.into(),
        })
    }

    fn on_mount(&self, directory: &File, device: &Device) -> anyhow::Result<()> {
        let in_background = !self.foreground && !background::is_second();
        if in_background {
            return match background::start()? {
                Ok(_) => Ok(()),
                // It has told why.
                Err(_) => Err(anyhow::Error::msg("the replace has not begun")),
            };
        }
        // The server or the kernel opens it itself.
        let claimed = self.claim()?;
        let room = claimed.device().len_bytes();
        claimed.keep();
        if room < device.total_bytes {
            let wanted = room.to_string();
            self.enqueue.wait(|| {
                larder_ioctl::resize_device(directory, device.id, &wanted).map_err(of_mount)
            })?;
        }
        let target = self.target.canonicalize()?;
        if background::is_second() {
            background::say_begun()?;
        }
        let start =
            || larder_ioctl::start_replace(directory, device.id, self.avoid_source, &target);
        self.enqueue.wait(|| Ok(start()?))
    }
}

/// Whether a path is that of a device of the file system.
fn is_member(filesystem: &Changing, path: &Path) -> anyhow::Result<bool> {
    let Ok(path) = path.canonicalize() else { return Ok(false) };
    let is_it = |device: Device| {
        device.path.and_then(|own| own.canonicalize().ok()).is_some_and(|own| own == path)
    };
    Ok(filesystem.devices()?.into_iter().any(is_it))
}
