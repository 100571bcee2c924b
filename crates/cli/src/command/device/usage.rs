//! `larder device usage`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder::{DeviceInfo, Overview, Space};
use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::space::{
    DeviceSpace, Shown, kind_name, known_spaces, own_devices, profile_name, shown_name, slack,
    unallocated,
};

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
    shown: Shown,
}

impl Usage {
    pub fn run(self, global: &Global) -> Outcome {
        if global.is_json() {
            let filesystems = self.shown.describe_each(Object::new)?;
            write_json(&mut stdout(), "device-usage", &filesystems)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut filesystems = self.shown.open_each();
        while let Some(filesystem) = filesystems.next() {
            self.show(&*filesystem?)?;
            // As in btrfs-progs, also before one that cannot be shown.
            if filesystems.len() > 0 {
                writeln!(stdout())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, filesystem: &dyn Overview) -> anyhow::Result<()> {
        let spaces = known_spaces(filesystem)?;
        let mut out = stdout();
        for device in own_devices(filesystem)? {
            writeln!(out, "{}, ID: {}", shown_name(&device), device.id)?;
            let mut line = |what: &str, bytes: u64| {
                writeln!(out, "   {:<22}{:>10}", format!("{what}:"), self.shown.units.show(bytes))
            };
            let slack = slack(&device);
            // That of the device itself, of which nothing is there if it is missing.
            let size = device.name.as_ref().map_or(0, |_| device.total_bytes + slack);
            line("Device size", size)?;
            line("Device slack", slack)?;
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
    let is_striped = space.profile.is_some_and(|profile| profile.shape().is_striped);
    if is_striped { format!("{kind}/{stripes}") } else { kind }
}

/// The devices of a file system as JSON; sizes are in bytes.
#[derive(Serialize)]
struct Object {
    devices: Vec<Device>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Device {
    #[serde(flatten)]
    space: DeviceSpace,
    block_groups: Vec<BlockGroups>,
}

/// The block groups of one kind, profile and number of stripes.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct BlockGroups {
    bg_type: &'static str,
    bg_profile: String,
    stripes: usize,
    size: u64,
}

impl Object {
    fn new(filesystem: &dyn Overview) -> anyhow::Result<Self> {
        let spaces = known_spaces(filesystem)?;
        let devices = own_devices(filesystem)?;
        Ok(Self { devices: devices.iter().map(|device| Device::new(device, &spaces)).collect() })
    }
}

impl Device {
    fn new(device: &DeviceInfo, spaces: &[Space]) -> Self {
        let parts = spaces.iter().flat_map(|space| {
            let here = space.stripe_bytes.iter().filter(|((id, _), _)| *id == device.id);
            here.map(|((_, stripes), bytes)| BlockGroups {
                bg_type: kind_name(space.kind),
                bg_profile: profile_name(space.profile),
                stripes: *stripes,
                size: *bytes,
            })
        });
        Self { space: DeviceSpace::new(device), block_groups: parts.collect() }
    }
}
