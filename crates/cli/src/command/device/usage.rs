//! `larder device usage`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use larder::{Profile, Space};

use crate::command::Outcome;
use crate::command::filesystem::{kind_name, known_spaces, profile_name, slack, unallocated};
use crate::output::stdout;
use crate::source::Source;
use crate::units::Units;

/// Show what takes the space on each device
///
/// Slack is what a device has past the end of its part of the file system. For a mounted file
/// system only root, or the user who mounted it with larder, gets this.
///
/// Examples:
///   larder device usage disk.img
///   larder device usage ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Usage {
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// Image files or block devices, each with a file system of its own, or directories of file
    /// systems that are mounted
    #[arg(required = true, value_name = "IMAGE[:/PATH] or PATH")]
    images: Vec<PathBuf>,
}

impl Usage {
    pub fn run(self) -> Outcome {
        for (number, image) in self.images.iter().enumerate() {
            self.show(image)?;
            if number + 1 < self.images.len() {
                writeln!(stdout())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, image: &Path) -> anyhow::Result<()> {
        let filesystem = self.source.overview(image.as_os_str())?;
        let spaces = known_spaces(&*filesystem)?;
        let mut out = stdout();
        for device in filesystem.devices()? {
            let name = device.name.as_deref().unwrap_or("missing");
            writeln!(out, "{name}, ID: {}", device.id)?;
            let mut line = |what: &str, bytes: u64| {
                writeln!(out, "   {:<22}{:>10}", format!("{what}:"), self.units.show(bytes))
            };
            line("Device size", device.total_bytes + slack(&device))?;
            line("Device slack", slack(&device))?;
            for space in &spaces {
                let here = space.stripe_bytes.iter().filter(|((id, _), _)| *id == device.id);
                for ((_, stripes), bytes) in here {
                    line(&kind_of(space, *stripes), *bytes)?;
                }
            }
            line("Unallocated", unallocated(&device))?;
            writeln!(out)?;
        }
        Ok(())
    }
}

/// `Data,RAID0/2`: the number of stripes only where a chunk can have more or fewer.
fn kind_of(space: &Space, stripes: usize) -> String {
    let kind = format!("{},{}", kind_name(space.kind), profile_name(space.profile));
    match space.profile {
        Some(Profile::Raid0 | Profile::Raid10 | Profile::Raid5 | Profile::Raid6) => {
            format!("{kind}/{stripes}")
        }
        _ => kind,
    }
}
